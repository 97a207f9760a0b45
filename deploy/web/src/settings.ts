// The form of the settings. Its inputs are named as the proto names their fields, so that a violation finds its input.

import type { MessageInitShape } from "@bufbuild/protobuf";
import type { SamplingParamsSchema } from "../gen/sluicegate/v1/sampling_params_pb";
import type { Violation } from "./failure";

type Input = HTMLInputElement | HTMLTextAreaElement | HTMLSelectElement;

/** A setting with which the server, which checks all else, could not be asked. */
export class SettingError extends Error {
  constructor(readonly violations: readonly Violation[]) {
    super("a setting cannot be sent");
  }
}

export class Settings {
  constructor(private readonly form: HTMLFormElement) {
    form.addEventListener("submit", (event) => event.preventDefault());
    this.input("theme").addEventListener("change", () => {
      document.documentElement.style.colorScheme = this.text("theme");
    });
  }

  text(name: string): string {
    return this.input(name).value.trim();
  }

  /** A URL; empty: that of this page. Throws SettingError. */
  address(): string {
    return this.matching("address", /^(https?:\/\/\S+)?$/i, "must begin with http:// or https://");
  }

  /** Empty: none. Throws SettingError. */
  apiKey(): string {
    // What it is is nothing to be shown.
    return this.matching("api_key", /^[\x21-\x7e]*$/, "must have none but printable ASCII characters, and no space");
  }

  /** What is left empty stays unset: then the model's own setting holds. Throws SettingError. */
  sampling(): MessageInitShape<typeof SamplingParamsSchema> {
    const violations: Violation[] = [];
    const number = (name: string, pattern: RegExp, kind: string): number | undefined => {
      const text = this.text(name);
      if (text !== "" && !pattern.test(text)) violations.push({ field: name, description: `must be ${kind}, got "${text}"` });
      return text === "" ? undefined : Number(text);
    };
    const real = (name: string) => number(`sampling_params.${name}`, /^-?(\d+\.?\d*|\.\d+)$/, "a number");
    const whole = (name: string) => number(`sampling_params.${name}`, /^-?\d{1,9}$/, "a whole number of at most 9 digits");
    const seed = whole("seed");
    const values = {
      temperature: real("temperature"),
      topP: real("top_p"),
      maxTokens: whole("max_tokens"),
      seed: violations.length > 0 || seed === undefined ? undefined : BigInt(seed),
    };
    if (violations.length > 0) throw new SettingError(violations);
    return values;
  }

  /** Shows what is wrong beside the setting that it is about. */
  mark(violations: readonly Violation[]): void {
    this.form.querySelectorAll(".violation").forEach((note) => note.remove());
    this.form.querySelectorAll("[aria-invalid]").forEach((input) => {
      input.removeAttribute("aria-invalid");
      input.removeAttribute("aria-describedby");
    });
    violations.forEach((violation) => this.markOne(violation));
  }

  private matching(name: string, pattern: RegExp, description: string): string {
    const text = this.text(name);
    if (!pattern.test(text)) throw new SettingError([{ field: name, description }]);
    return text;
  }

  private markOne({ field, description }: Violation): void {
    const input = this.form.elements.namedItem(field);
    if (!(input instanceof HTMLElement)) return;
    const note = document.createElement("span");
    note.className = "violation";
    note.id = `violation-of-${field}`;
    note.textContent = description;
    input.after(note);
    input.setAttribute("aria-invalid", "true");
    input.setAttribute("aria-describedby", note.id);
  }

  private input(name: string): Input {
    return this.form.elements.namedItem(name) as Input;
  }
}
