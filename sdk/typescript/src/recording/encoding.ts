// Converts values of an agent to text and JSON. No function here throws.

/** A longer content of an event is cut. */
export const MAX_CONTENT_CHARACTERS = 1_000_000;

/** A string unchanged, null and undefined as "", anything else as JSON. */
export function toText(value: unknown): string {
  if (typeof value === "string") return value;
  return value === undefined || value === null ? "" : toJson(value);
}

/** JSON. What JSON cannot represent becomes text. */
export function toJson(value: unknown): string {
  try {
    return JSON.stringify(value, plainReplacer()) ?? "null";
  } catch {
    return '"<an object that cannot be read>"';
  }
}

/** The name and the message of an error, otherwise the value as text. */
export function describeError(error: unknown): string {
  try {
    if (!(error instanceof Error)) return toText(error);
    return error.message ? `${error.name}: ${error.message}` : error.name;
  } catch {
    return "An error that cannot be read.";
  }
}

function plainReplacer(): (this: unknown, key: string, value: unknown) => unknown {
  const ancestors: unknown[] = [];
  return function (_key, value) {
    const plain = toPlain(value);
    if (typeof plain !== "object" || plain === null) return plain;
    while (ancestors.length > 0 && ancestors.at(-1) !== this) ancestors.pop();
    if (ancestors.includes(plain)) return "<circular>";
    ancestors.push(plain);
    return plain;
  };
}

function toPlain(value: unknown): unknown {
  if (typeof value === "number") return Number.isFinite(value) ? value : String(value);
  if (typeof value === "bigint" || typeof value === "symbol") return String(value);
  if (typeof value === "function") return `<function ${value.name}>`;
  if (value instanceof Error) return describeError(value);
  if (value instanceof Map) return Object.fromEntries(value);
  if (value instanceof Set) return [...value];
  if (value instanceof ArrayBuffer || ArrayBuffer.isView(value)) return `<${value.byteLength} bytes>`;
  return value;
}
