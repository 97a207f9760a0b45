// The conversation, as it is shown.

import type { Failure } from "./failure";
import type { Pace } from "./pace";

/** How far from its end a reader still counts as reading the end, in pixels. */
const END = 48;

export class Transcript {
  constructor(
    private readonly log: HTMLElement,
    private readonly welcome: HTMLElement,
  ) {}

  question(text: string): void {
    this.welcome.hidden = true;
    const article = added(this.log, "article", "question");
    added(article, "h2", "unseen", "You");
    added(article, "p", "text", text).dir = "auto";
  }

  answer(): AnswerView {
    const view = new AnswerView(added(this.log, "article", "answer"), this.log);
    this.log.scrollTop = this.log.scrollHeight;
    return view;
  }

  clear(): void {
    this.log.replaceChildren(this.welcome);
    this.welcome.hidden = false;
  }
}

export class AnswerView {
  private readonly text = new Text();
  private readonly pace: HTMLElement;
  private unseen = "";
  private frame = 0;

  constructor(
    private readonly article: HTMLElement,
    private readonly log: HTMLElement,
  ) {
    // Screen readers wait until it is complete, instead of reading tokens.
    article.setAttribute("aria-busy", "true");
    added(article, "h2", "", "Model");
    const paragraph = added(article, "p", "text");
    paragraph.dir = "auto";
    paragraph.append(this.text);
    this.pace = added(article, "p", "pace", "waiting for the first token");
  }

  get hasText(): boolean {
    return this.text.length > 0;
  }

  /** Seen with the next frame: a long text takes time to be laid out, and tokens may come faster. */
  more(text: string, pace: Pace): void {
    this.unseen += text;
    this.frame ||= requestAnimationFrame(() => this.show(pace.toString()));
  }

  /** `how` it ended, in a word or two. */
  end(pace: Pace, how: string): void {
    cancelAnimationFrame(this.frame);
    this.show(`${pace} · ${how}`);
    this.article.setAttribute("aria-busy", "false");
  }

  /** Nothing came, since nothing was asked. */
  notSent(): void {
    this.pace.textContent = "not sent";
    this.article.setAttribute("aria-busy", "false");
  }

  fail(failure: Failure): void {
    const box = added(this.article, "div", "failure");
    box.setAttribute("role", "alert");
    added(box, "strong", "", failure.code);
    if (failure.violations.length > 0) listViolations(box, failure);
    else added(box, "p", "", failure.message);
    if (failure.retryAfterSeconds !== undefined) {
      added(box, "p", "", `The server asks to try again after ${failure.retryAfterSeconds} s.`);
    }
    box.scrollIntoView({ block: "nearest" });
  }

  private show(pace: string): void {
    this.frame = 0;
    this.followed(() => {
      this.text.appendData(this.unseen);
      this.unseen = "";
      this.pace.textContent = pace;
    });
  }

  /** The end stays in view, unless the reader has scrolled away from it. */
  private followed(change: () => void): void {
    const { scrollTop, clientHeight, scrollHeight } = this.log;
    const atEnd = scrollHeight - scrollTop - clientHeight < END;
    change();
    if (atEnd) this.log.scrollTop = this.log.scrollHeight;
  }
}

function listViolations(box: HTMLElement, failure: Failure): void {
  const list = added(box, "ul");
  for (const { field, description } of failure.violations) {
    const item = added(list, "li");
    added(item, "code", "", field);
    item.append(` ${description}`);
  }
  // All that was said is sent with each question: a conversation outgrows the model in the end.
  if (failure.violations.some(({ field }) => field === "chat")) added(box, "p", "", "A new chat has room again.");
}

/** Text is always text: what a model says is never markup. */
function added(parent: HTMLElement, tag: string, className = "", text = ""): HTMLElement {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.textContent = text;
  parent.append(element);
  return element;
}
