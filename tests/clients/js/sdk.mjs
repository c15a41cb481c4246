// What @a2a-js/sdk's client makes of a host: node sdk.mjs URL JSONRPC|HTTP+JSON|GRPC CONTEXT WEBHOOK

import { randomUUID } from "node:crypto";
import { Role, TaskState } from "@a2a-js/sdk";
import { ClientFactory, JsonRpcTransportFactory, RestTransportFactory } from "@a2a-js/sdk/client";
import { GrpcTransportFactory } from "@a2a-js/sdk/client/grpc";

const [url, binding, context, webhook] = process.argv.slice(2);
const transports = {
  JSONRPC: new JsonRpcTransportFactory(),
  "HTTP+JSON": new RestTransportFactory(),
  GRPC: new GrpcTransportFactory(),
};
const client = await new ClientFactory({ transports: [transports[binding]] }).createFromUrl(url);

const state = (status) => TaskState[status.state].replace("TASK_STATE_", "").toLowerCase().replaceAll("_", "-");
const textOf = (parts) =>
  parts.map((part) => (part.content?.$case === "text" ? part.content.value : "")).join("");
const part = (content, more = {}) => ({ content, metadata: undefined, filename: "", mediaType: "", ...more });

const request = (text, { task = "", atOnce = false, file } = {}) => ({
  tenant: "",
  message: {
    messageId: randomUUID(),
    contextId: context,
    taskId: task,
    role: Role.ROLE_USER,
    parts: [
      part({ $case: "text", value: text }),
      ...(file ? [part({ $case: "raw", value: file }, { filename: "large.bin" })] : []),
    ],
    metadata: undefined,
    extensions: [],
    referenceTaskIds: [],
  },
  configuration: {
    acceptedOutputModes: [],
    taskPushNotificationConfig: undefined,
    historyLength: undefined,
    returnImmediately: atOnce,
  },
  metadata: undefined,
});

const found = {};
const sent = await client.sendMessage(request("hello"));
found.send = { state: state(sent.status), files: textOf(sent.artifacts[0].parts) };

const events = [];
for await (const event of client.sendMessageStream(request("stream 3"))) events.push(event.payload);
const chunks = events
  .filter((e) => e.$case === "artifactUpdate" && e.value.artifact.artifactId === "stream")
  .map((e) => textOf(e.value.artifact.parts));
found.stream = { first: events[0].$case, chunks: chunks.join(""), state: state(events.at(-1).value.status) };

const asked = await client.sendMessage(request("ask blue or green?"));
const told = await client.createTaskPushNotificationConfig({
  tenant: "", id: "", taskId: asked.id, url: webhook, token: context, authentication: undefined,
});
found.push = { url: told.url };
const answered = await client.sendMessage(request("blue", { task: asked.id }));
found.continue = {
  asked: [state(asked.status), textOf(asked.status.message.parts)],
  same: answered.id === asked.id,
  state: state(answered.status),
};

const running = await client.sendMessage(request("sleep 60", { atOnce: true }));
const canceled = await client.cancelTask({ tenant: "", id: running.id, metadata: undefined });
found.cancel = { before: state(running.status), after: state(canceled.status) };

const listed = await client.listTasks({
  tenant: "", contextId: context, status: 0, pageToken: "", statusTimestampAfter: undefined,
});
found.list = { tasks: listed.tasks.map((task) => state(task.status)), total: listed.totalSize };

const large = await client.sendMessage(request("large", { file: Buffer.alloc(300_000) }));
const read = await client.getTask({ tenant: "", id: large.id, historyLength: undefined });
const file = read.history[0].parts.find((one) => one.filename);
found.large = { url: file.content.value, size: file.metadata["a2a-gcs/size"] };

console.log(JSON.stringify(found));
process.exit(0);
