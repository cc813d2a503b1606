export function warn(message: string): void {
  console.warn(`hansei: ${message}`);
}
