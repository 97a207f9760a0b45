package sluicegate.client;

import java.io.Serializable;

/**
 * One thing wrong with a request.
 *
 * @param field path of the field, as the proto spells it, such as {@code sampling_params.top_p}
 * @param description what is wrong with it, with the bound
 */
public record Violation(String field, String description) implements Serializable {}
