// Reads messages as Python wrote them and writes them as protobuf-es does: one JSON object a line, in and out.
import type { DescFile, JsonValue, Registry } from "@bufbuild/protobuf";
import { createRegistry, fromBinary, fromJson, toBinary, toJson } from "@bufbuild/protobuf";
import { base64Decode, base64Encode } from "@bufbuild/protobuf/wire";
import { file_google_rpc_error_details } from "./made/google/rpc/error_details_pb.js";

// One message: its full name, its bytes in base64, and what Python makes of it in JSON.
type Sample = { type: string; binary: string; json: JsonValue };

// The bytes as JSON, and the JSON as bytes.
type Answer = { json?: JsonValue; binary?: string; error?: string };

declare const process: {
  argv: string[];
  stdin: AsyncIterable<Uint8Array>;
  stdout: { write(text: string): void };
};

// What a caller gives for the details of errors.
const registry = createRegistry(file_google_rpc_error_details);

function convert(given: Sample, known: Registry): Answer {
  const schema = known.getMessage(given.type);
  if (schema === undefined) {
    return { error: `nothing is named ${given.type}` };
  }
  const json = toJson(schema, fromBinary(schema, base64Decode(given.binary)), { registry });
  const read = fromJson(schema, given.json, { registry });
  return { json, binary: base64Encode(toBinary(schema, read)) };
}

async function main(modules: string[]) {
  const files: DescFile[] = [];
  for (const name of modules) {
    const module: Record<string, unknown> = await import(name);
    files.push(...Object.entries(module).filter(([k]) => k.startsWith("file_")).map(([, v]) => v as DescFile));
  }
  const known = createRegistry(...files);
  let text = "";
  const decoder = new TextDecoder();
  for await (const piece of process.stdin) {
    text += decoder.decode(piece, { stream: true });
  }
  for (const line of text.split("\n").filter((line) => line !== "")) {
    let answer: Answer;
    try {
      answer = convert(JSON.parse(line) as Sample, known);
    } catch (error) {
      answer = { error: String(error) };
    }
    process.stdout.write(JSON.stringify(answer) + "\n");
  }
}

await main(process.argv.slice(2));
