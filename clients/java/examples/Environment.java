/** Variables of the environment. */
final class Environment {
  private Environment() {}

  static String variable(String name, String otherwise) {
    return System.getenv().getOrDefault(name, otherwise);
  }
}
