"use strict";
(async () => {
  const make = (tag, options = {}, ...children) => {
    const made = Object.assign(document.createElement(tag), options);
    made.append(...children);
    return made;
  };
  const home = document.getElementById("endpoints");
  document.getElementById("origin").textContent = location.origin;
  const description = await (await fetch("/openapi.json")).json();

  const named = (schema) => schema.$ref ? description.components.schemas[schema.$ref.split("/").pop()] : schema;
  const kind = (schema) => {
    if (schema.$ref) return schema.$ref.split("/").pop();
    if (schema.enum) return schema.enum.join(" | ");
    if (schema.type === "array") return `list of ${kind(schema.items || {})}`;
    if (schema.additionalProperties) return `name → ${kind(schema.additionalProperties)}`;
    const types = [schema.type || "anything"].flat().filter((each) => each !== "null");
    return [...types, schema.format].filter(Boolean).join(", ");
  };
  const table = (title, head, rows) => make("div", { className: "table" },
    make("div", { className: "table-head" }, make("h3", { textContent: title })),
    make("div", { className: "scroll", tabIndex: 0 }, make("table", {},
      make("thead", {}, make("tr", {}, ...head.map((text) => make("th", { scope: "col", textContent: text })))),
      make("tbody", {}, ...rows.map((cells) => make("tr", {}, ...cells.map((text, place) =>
        make(place ? "td" : "th", { textContent: text }))))))));

  for (const [path, methods] of Object.entries(description.paths))
    for (const [method, about] of Object.entries(methods)) {
      const part = make("section", { className: "endpoint" },
        make("h2", {}, make("span", { className: `method ${method}`, textContent: method.toUpperCase() }), make("code", { textContent: path })),
        make("p", { textContent: about.summary }));
      if (about.description) part.append(make("p", { className: "fine", textContent: about.description.replace(/\s+/g, " ") }));
      if (about.requestBody)
        part.append(table("Request", ["type", "fields"], Object.entries(about.requestBody.content).map(([type, content]) =>
          [type, Object.entries(content.schema.properties).map(([name, schema]) => `${name}: ${kind(schema)}`).join("; ")])));
      part.append(table("Answers", ["status", "what", "form"], Object.entries(about.responses).map(([status, answer]) =>
        [status, answer.description, Object.values(answer.content || {}).map((content) => kind(content.schema || {})).join(", ")])));
      home.append(part);
    }
  home.append(make("h2", { textContent: "Forms" }));
  for (const [name, schema] of Object.entries(description.components.schemas))
    if (schema.properties)
      home.append(table(name, ["field", "type", "meaning"], Object.entries(schema.properties).map(([field, inner]) =>
        [field, kind(inner), inner.description || named(inner).description || ""])));
})();
