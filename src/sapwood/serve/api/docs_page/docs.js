// Renders openapi.json as a page. Texts become text nodes, never markup.
"use strict";

const METHODS = ["get", "post", "put", "patch", "delete"];
const samples = []; // functions that write the curl lines again, with or without a key
let api;

function make(tag, properties, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children.filter((child) => child !== null));
  return element;
}

// Returns a text as nodes, with `code` in backquotes.
function prose(text) {
  return (text || "").split("`").map((part, i) => (i % 2 ? make("code", {}, part) : part));
}

function paragraphs(text) {
  return (text || "").trim().split(/\n\s*\n/).filter(Boolean).map((part) => make("p", {}, ...prose(part)));
}

function resolve(schema) {
  if (!schema || !schema.$ref) return schema || {};
  return schema.$ref.slice(2).split("/").reduce((found, key) => found[key], api);
}

function typeOf(schema) {
  const found = resolve(schema);
  if (found.anyOf) return found.anyOf.filter((each) => each.type !== "null").map(typeOf).join(" or ");
  if (found.enum) return found.enum.map((value) => JSON.stringify(value)).join(" | ");
  if (found.const !== undefined) return JSON.stringify(found.const);
  if (found.type === "array") return `list of ${typeOf(found.items) || "anything"}`;
  return found.type || "";
}

function bounds(schema) {
  const all = [schema, ...(schema.anyOf || [])];
  const phrases = { minimum: "at least %", maximum: "at most %", maxLength: "at most % characters" };
  return Object.entries(phrases).flatMap(([key, phrase]) => {
    const found = all.find((each) => each[key] !== undefined);
    return found ? [phrase.replace("%", found[key].toLocaleString("en"))] : [];
  });
}

function row(name, schema, required, place, description) {
  const notes = [place, typeOf(schema), ...bounds(schema)];
  if (required) notes.push("required");
  else if (schema.default !== undefined && schema.default !== null) {
    notes.push(`default ${JSON.stringify(schema.default)}`);
  }
  return make("div", {},
    make("dt", {}, make("code", {}, name)),
    make("dd", {}, ...prose(description || resolve(schema).description), " ",
      make("span", { className: "type" }, notes.filter(Boolean).join(", "))));
}

function fields(schema, isAnswer = false) {
  const found = resolve(schema);
  if (found.anyOf) return found.anyOf.flatMap((each) => fields(each, isAnswer));
  if (found.type === "array") return fields(found.items, isAnswer);
  const required = new Set(isAnswer ? [] : found.required);
  return Object.entries(found.properties || {}).map(([name, value]) =>
    row(name, value, required.has(name), "", value.description));
}

function section(heading, rows) {
  return rows.length ? [make("h3", {}, heading), make("dl", {}, ...rows)] : [];
}

function exampleOf(content) {
  const schema = resolve(content.schema);
  const found = content.example ?? schema.example ?? (schema.examples || [])[0];
  if (found === undefined) return null;
  return typeof found === "string" ? found : JSON.stringify(found);
}

function quote(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

function curl(method, path, operation) {
  const origin = location.href.replace(/\/docs([?#].*)?$/, "");
  const sample = { name: "desk", id: "large-orders", stream: "orders", number: "1", seq: "1" };
  const needed = (operation.parameters || []).filter((each) => each.in === "query" && each.required);
  const query = needed.map((each) => `${each.name}=${sample.id}`).join("&");
  const address = origin + path.replace(/{(\w+)}/g, (_, name) => sample[name] || name) + (query && `?${query}`);
  const words = ["curl"];
  if (path.endsWith("/events")) words.push("-N");
  if (method !== "get" && !(method === "post" && operation.requestBody)) words.push(`-X ${method.toUpperCase()}`);
  words.push(quote(address));
  if (operation.security && document.getElementById("with-key").checked) {
    words.push('-H "Authorization: Bearer $SAPWOOD_KEY"');
  }
  const [type, content] = Object.entries(operation.requestBody?.content || {})[0] || [];
  if (type) {
    words.push(`-H ${quote(`Content-Type: ${type}`)}`, `--data-binary ${quote(exampleOf(content) ?? "{}")}`);
  }
  return words.join(" \\\n  ");
}

function sample(write) {
  const code = make("code", {}, write());
  samples.push(() => { code.textContent = write(); });
  const button = make("button", { type: "button" }, "Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch { // a page without TLS has no clipboard
      getSelection().selectAllChildren(code);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  return make("div", { className: "sample" }, make("pre", { tabIndex: 0 }, code), button);
}

function bodies(operation) {
  return Object.entries(operation.requestBody?.content || {}).flatMap(([type, content]) => {
    const example = exampleOf(content);
    return [
      ...section(`Body: ${type}`, fields(content.schema)),
      ...(fields(content.schema).length ? [] : [make("h3", {}, `Body: ${type}`)]),
      example ? make("pre", { tabIndex: 0 }, make("code", {}, example)) : null,
    ].filter(Boolean);
  });
}

function answers(operation) {
  const rows = Object.entries(operation.responses).map(([status, answer]) =>
    make("div", {}, make("dt", {}, make("code", {}, status)), make("dd", {}, ...prose(answer.description))));
  const good = Object.entries(operation.responses).filter(([status]) => status < "300");
  const schema = good.map(([, answer]) => answer.content?.["application/json"]?.schema).find(Boolean);
  return [...section("Answers", rows), ...section("Fields of the answer", schema ? fields(schema, true) : [])];
}

function endpoint(method, path, operation) {
  const parameters = (operation.parameters || []).map((each) =>
    row(each.name, each.schema, each.required, each.in, each.description));
  const box = make("details", { id: operation.operationId },
    make("summary", {},
      make("span", { className: "method" }, method.toUpperCase()),
      make("span", { className: "path" }, path),
      make("span", { className: "what" }, operation.summary || "")));
  box.addEventListener("toggle", () => { // made when it is opened first: there are many
    if (box.children.length > 1) return;
    box.append(make("div", {},
      ...paragraphs(operation.description),
      sample(() => curl(method, path, operation)),
      ...section("Parameters", parameters),
      ...bodies(operation),
      ...answers(operation)));
  });
  box.dataset.text = `${method} ${path} ${operation.summary} ${operation.description}`.toLowerCase();
  return box;
}

function render() {
  document.getElementById("title").textContent = `${api.info.title} ${api.info.version}`;
  document.getElementById("about").append(...paragraphs(api.info.description));
  const operations = Object.entries(api.paths).flatMap(([path, item]) =>
    METHODS.filter((method) => item[method]).map((method) => [method, path, item[method]]));
  const main = document.getElementById("endpoints");
  for (const tag of api.tags) {
    const own = operations.filter(([, , operation]) => operation.tags?.includes(tag.name));
    if (!own.length) continue;
    main.append(make("section", {},
      make("h2", {}, tag.name), make("p", {}, ...prose(tag.description)),
      ...own.map((each) => endpoint(...each))));
  }
  const linked = location.hash && document.getElementById(location.hash.slice(1));
  if (linked) {
    linked.open = true;
    linked.scrollIntoView();
  }
}

function search(event) {
  const words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const box of document.querySelectorAll("details")) {
    box.hidden = !words.every((word) => box.dataset.text.includes(word));
  }
  for (const part of document.querySelectorAll("section")) {
    part.hidden = !part.querySelector("details:not([hidden])");
  }
}

document.getElementById("search").addEventListener("input", search);
document.getElementById("with-key").addEventListener("change", () => samples.forEach((write) => write()));
fetch("openapi.json")
  .then((answer) => answer.json())
  .then((found) => { api = found; render(); })
  .catch((error) => {
    document.getElementById("endpoints").append(make("p", {}, `openapi.json cannot be read: ${error}`));
  });
