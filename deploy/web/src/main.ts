// The page: what its buttons and keys do.

import { Chat } from "./chat";
import { connect } from "./connection";
import { Failure } from "./failure";
import { SettingError, Settings } from "./settings";
import { Transcript } from "./transcript";

const find = <E extends HTMLElement>(id: string): E => document.getElementById(id) as E;

const composer = find<HTMLFormElement>("composer");
const message = find<HTMLTextAreaElement>("message");
const send = find<HTMLButtonElement>("send");
const stop = find<HTMLButtonElement>("stop");
const status = find("status");
const settings = new Settings(find<HTMLFormElement>("settings-form"));
const transcript = new Transcript(find("transcript"), find("welcome"));
let chat = new Chat();
/** Of the answer that comes, if one does. */
let running: AbortController | undefined;

async function ask(question: string): Promise<void> {
  const mine = begin();
  const here = chat;
  transcript.question(question);
  const view = transcript.answer();
  const failure = await attempt();
  finish(mine, failure);
  // Unless a new chat has begun meanwhile, what has no answer is there to be sent again.
  if (chat !== here || (failure === undefined && view.hasText)) return;
  if (message.value === "") message.value = question;
  if (failure === undefined) return;
  settings.mark(failure.violations);
  view.fail(failure);

  async function attempt(): Promise<Failure | undefined> {
    try {
      const server = connect(settings.address(), settings.apiKey());
      return await here.ask(question, settings.text("system"), settings.sampling(), server, view, mine.signal);
    } catch (error) {
      view.notSent();
      return error instanceof SettingError ? Failure.ofSettings(error.violations) : Failure.of(error);
    }
  }
}

function begin(): AbortController {
  running = new AbortController();
  settings.mark([]);
  status.textContent = "The model answers.";
  showRunning(true);
  return running;
}

function finish(mine: AbortController, failure: Failure | undefined): void {
  running = undefined;
  status.textContent = failure ? "The answer failed." : mine.signal.aborted ? "Stopped." : "The answer is complete.";
  showRunning(false);
}

/** One of the two buttons is there at a time; whoever stood on one stands on the other. */
function showRunning(isRunning: boolean): void {
  const had = document.activeElement === send || document.activeElement === stop;
  send.hidden = isRunning;
  stop.hidden = !isRunning;
  if (had) (isRunning ? stop : message).focus();
}

composer.addEventListener("submit", (event) => {
  event.preventDefault();
  const question = message.value.trim();
  if (question === "" || running !== undefined) return;
  message.value = "";
  void ask(question);
});

message.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  composer.requestSubmit();
});

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") running?.abort();
});

stop.addEventListener("click", () => running?.abort());

find("new-chat").addEventListener("click", () => {
  running?.abort();
  chat = new Chat();
  transcript.clear();
  settings.mark([]);
  message.focus();
});

find("examples").addEventListener("click", (event) => {
  const example = event.target as HTMLElement;
  if (example.tagName !== "BUTTON" || running !== undefined) return;
  void ask(example.textContent ?? "");
  message.focus(); // The example that had it is hidden now.
});

// There is no room for them beside the conversation.
const narrow = window.matchMedia("(max-width: 50rem)");
const makeRoom = () => (find<HTMLDetailsElement>("settings").open = !narrow.matches);
narrow.addEventListener("change", makeRoom);
makeRoom();
