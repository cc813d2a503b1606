// Renders playbooks for an agent that must not wait: a deadline, a circuit and the last block.
import type { Hansei } from "../client.js";
import type { components } from "../schema.js";
import { describeError } from "./encoding.js";
import { warn } from "./log.js";

export type RenderRequest = components["schemas"]["RenderPlaybookRequest"];

/** After a failure, nothing is asked for this long. It doubles with each further failure. */
const INITIAL_PAUSE_SECONDS = 5;
const MAX_PAUSE_SECONDS = 60;
const MAX_REMEMBERED = 100;
const MAX_QUERY_CHARACTERS = 10_000;

/** The text for the prompt. Without `retrievalId`, it is of an earlier request. */
export interface Block {
  text: string;
  retrievalId?: string;
}

export class Advice {
  readonly #client: Hansei;
  readonly #last = new Map<string, string>();
  #pause = INITIAL_PAUSE_SECONDS;
  #closedUntil = 0;

  /** The client's timeout is how long an agent waits. */
  constructor(client: Hansei) {
    this.#client = client;
  }

  /** Never rejects. If the service fails or does not respond in time: the playbook's last text. */
  async render(playbook: string, request: RenderRequest): Promise<Block> {
    const last = { text: this.#last.get(playbook) ?? "" };
    if (performance.now() < this.#closedUntil) return last;
    try {
      const query_text = request.query_text?.slice(0, MAX_QUERY_CHARACTERS) ?? "";
      const block = await this.#client.renderPlaybook(playbook, { ...request, query_text });
      this.#pause = INITIAL_PAUSE_SECONDS;
      if (this.#last.size >= MAX_REMEMBERED) this.#last.clear();
      this.#last.set(playbook, block.text);
      return { text: block.text, retrievalId: block.retrieval_id };
    } catch (error) {
      warn(`The agent runs without new advice for ${this.#pause} seconds. ${describeError(error)}`);
      this.#closedUntil = performance.now() + this.#pause * 1000;
      this.#pause = Math.min(this.#pause * 2, MAX_PAUSE_SECONDS);
      return last;
    }
  }
}
