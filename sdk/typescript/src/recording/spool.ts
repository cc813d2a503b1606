// Stores recorded traces until they are sent: on disk, or in memory if the folder is not writable.
//
// A trace is one file, `<trace>.<owner>.open` while the agent runs and `.ready` when it has ended.
// A line is `T` and fields of the trace as JSON, `E` and an event, or `R` and why the service
// refused it. A process adopts the files of processes that have ended.
import { createHash } from "node:crypto";
import * as fs from "node:fs";
import { homedir, hostname } from "node:os";
import { join } from "node:path";
import { describeError } from "./encoding.js";
import { warn } from "./log.js";

/** Traces of one process that are not sent yet. More is not recorded. */
const MAX_DISK_BYTES = 512 * 1024 * 1024;
const MAX_MEMORY_CHARACTERS = 64 * 1024 * 1024;
const INTERRUPTED = 'T{"metadata":{"interrupted":"The process ended before the agent run."}}';
const REJECTED_FOLDER = "rejected";
/** A file whose owner cannot be checked is adopted after a day without changes. */
const UNUSED_MILLISECONDS = 24 * 3600 * 1000;
const HOST = hostname().replace(/[^\w-]/g, "_") || "host";
const OWNER = `${HOST}-${process.pid}-${startTime(process.pid) ?? 0}`;

export class Spool {
  readonly #folder: string | undefined;
  /** Lines that found no place on the disk. */
  readonly #memory = new Map<string, string>();
  readonly #ready = new Set<string>();
  #diskBytes = 0;
  #memoryCharacters = 0;
  #isFull = false;
  #hasWarned = false;

  constructor(folder: string) {
    try {
      makePrivate(folder);
      this.#folder = folder;
      this.adopt();
    } catch (error) {
      this.#warn(error);
    }
  }

  /** The oldest trace that has ended. */
  get next(): string | undefined {
    return this.#ready.values().next().value;
  }

  get readyCount(): number {
    return this.#ready.size;
  }

  append(name: string, line: string): void {
    // The line break is in front: a line that was cut on a full disk spoils no other one.
    const text = `\n${line}`;
    if (!this.#memory.has(name) && this.#write(name, text)) return;
    if (this.#memoryCharacters + text.length > MAX_MEMORY_CHARACTERS) {
      if (!this.#isFull) warn("Events of agent runs are lost: the spool is full.");
      this.#isFull = true;
      return;
    }
    this.#memory.set(name, (this.#memory.get(name) ?? "") + text);
    this.#memoryCharacters += text.length;
  }

  /** The trace has ended and can be sent. */
  finish(name: string): void {
    const rest = this.#memory.get(name);
    if (rest !== undefined && this.#write(name, rest)) this.#forget(name);
    this.#try(() => fs.renameSync(this.#file(name, "open"), this.#file(name, "ready")));
    this.#ready.add(name);
  }

  read(name: string): string {
    const file = this.#existing(name);
    return (file ? fs.readFileSync(file, "utf8") : "") + (this.#memory.get(name) ?? "");
  }

  remove(name: string): void {
    this.#ready.delete(name);
    this.#forget(name);
    this.#try(() => {
      const file = this.#existing(name);
      if (file === undefined) return;
      this.#diskBytes -= fs.statSync(file).size;
      fs.unlinkSync(file);
    });
  }

  /** The service refuses the trace: store it where it is not sent again. */
  reject(name: string, reason: string): void {
    this.#try(() => {
      const file = this.#existing(name);
      if (this.#folder === undefined || file === undefined) return;
      const rejected = join(this.#folder, REJECTED_FOLDER);
      fs.mkdirSync(rejected, { recursive: true, mode: 0o700 });
      const text = `${this.read(name)}\nR${JSON.stringify(reason)}\n`;
      fs.writeFileSync(join(rejected, `${name}.ready`), text, { mode: 0o600 });
    });
    this.remove(name);
  }

  /** Take over the traces of processes that have ended. */
  adopt(): void {
    const folder = this.#folder;
    if (folder === undefined) return;
    let files: string[] = [];
    this.#try(() => (files = fs.readdirSync(folder).sort()));
    for (const file of files) {
      const [name, owner, state] = file.split(".");
      if (name === undefined || owner === undefined || owner === OWNER) continue;
      if (state !== "open" && state !== "ready") continue;
      this.#try(() => {
        const { mtimeMs, size } = fs.statSync(join(folder, file));
        if (isAlive(owner, mtimeMs)) return;
        fs.renameSync(join(folder, file), this.#file(name, state));
        this.#diskBytes += size;
        if (state === "open") {
          this.append(name, INTERRUPTED);
          this.finish(name);
        }
        this.#ready.add(name);
      });
    }
  }

  /** False if the disk does not take the text. */
  #write(name: string, text: string): boolean {
    if (this.#folder === undefined) return false;
    const bytes = Buffer.byteLength(text);
    try {
      if (this.#diskBytes + bytes > MAX_DISK_BYTES) throw new Error("The spool folder is full.");
      fs.appendFileSync(this.#file(name, "open"), text, { mode: 0o600 });
      this.#diskBytes += bytes;
      return true;
    } catch (error) {
      this.#warn(error);
      return false;
    }
  }

  #file(name: string, state: "open" | "ready"): string {
    return join(this.#folder ?? "", `${name}.${OWNER}.${state}`);
  }

  #existing(name: string): string | undefined {
    if (this.#folder === undefined) return undefined;
    return [this.#file(name, "ready"), this.#file(name, "open")].find((file) => fs.existsSync(file));
  }

  #forget(name: string): void {
    this.#memoryCharacters -= this.#memory.get(name)?.length ?? 0;
    this.#memory.delete(name);
  }

  #try(action: () => void): void {
    try {
      action();
    } catch (error) {
      const isGone = (error as NodeJS.ErrnoException).code === "ENOENT"; // another process was first
      if (!isGone) this.#warn(error);
    }
  }

  #warn(error: unknown): void {
    if (!this.#hasWarned) warn(`The spool on disk fails: ${describeError(error)}`);
    this.#hasWarned = true;
  }
}

/**
 * The folder of the traces for this service and key. Another key may belong to another tenant and
 * never sends them. The Python client locks its folders, which Node.js cannot, so both have theirs.
 */
export function spoolFolder(url: string, apiKey: string | undefined, root?: string): string {
  const { HANSEI_SPOOL_DIR, XDG_STATE_HOME } = process.env;
  const state = () => join(XDG_STATE_HOME || join(homedir(), ".local", "state"), "hansei", "spool");
  const hash = createHash("sha256").update(`${url}\0${apiKey ?? ""}`).digest("hex");
  return join(root || HANSEI_SPOOL_DIR || state(), `${hash.slice(0, 16)}-node`);
}

/** Creates the folder. Throws if another user could have prepared it or can write into it. */
function makePrivate(folder: string): void {
  fs.mkdirSync(folder, { recursive: true, mode: 0o700 });
  const status = fs.lstatSync(folder);
  const isOwn = process.getuid === undefined || status.uid === process.getuid();
  const isWritable = process.platform !== "win32" && (status.mode & 0o022) !== 0;
  if (!status.isDirectory() || !isOwn || isWritable) {
    throw new Error(`Another user could have prepared the folder ${folder}, or can write into it.`);
  }
  fs.accessSync(folder, fs.constants.W_OK);
}

function isAlive(owner: string, changedAt: number): boolean {
  const [, host, pid, start] = /^(.*)-(\d+)-(\d+)$/.exec(owner) ?? [];
  if (host !== HOST) return Date.now() - changedAt < UNUSED_MILLISECONDS;
  if (start !== "0") return startTime(Number(pid)) === start;
  try {
    process.kill(Number(pid), 0);
    return Date.now() - changedAt < UNUSED_MILLISECONDS; // the process ID may be reused
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}

/** When a process began, which tells it from a later one with its ID. Linux only. */
function startTime(pid: number): string | undefined {
  try {
    const status = fs.readFileSync(`/proc/${pid}/stat`, "utf8");
    return status.slice(status.lastIndexOf(")") + 2).split(" ")[19]; // proc(5), field 22
  } catch {
    return undefined;
  }
}
