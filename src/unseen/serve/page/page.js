"use strict";
(() => {
  const at = (id) => document.getElementById(id);
  const MOST_CARDS = 20, AT_A_TIME = 3, CLASSES = 5;
  let facts = null, open = 0, wanted = [], sent = 0;

  // Names come from files and models: they are only ever set as text.
  const make = (tag, options = {}, ...children) => {
    const made = Object.assign(document.createElement(tag), options);
    made.append(...children.filter((child) => child !== null));
    return made;
  };
  const percent = (share) => share > 0.9995 || share === 0 ? `${Math.round(100 * share)}\u00a0%` : `${(100 * share).toFixed(1)}\u00a0%`;
  const number = (value) => value === undefined ? "" : Math.abs(value) >= 1000 ? value.toFixed(0) : Number(value.toPrecision(3)).toString();
  const bar = (share, color = "", mark = null) => {
    const inner = make("i");
    inner.style.width = `${100 * Math.min(1, Math.max(0, share))}%`;
    const outer = make("span", { className: `bar ${color}`, ariaHidden: "true" }, inner);
    if (mark !== null) {
      const line = make("b");
      line.style.left = `${100 * Math.min(1, mark)}%`;
      outer.append(line);
    }
    return outer;
  };

  const ask = async (path, options = {}) => {
    const token = sessionStorage.getItem("token");
    const headers = token ? { Authorization: `Bearer ${token}` } : {};
    const answer = await fetch(path, { ...options, headers });
    if (answer.status === 401) {
      at("token").hidden = false;
      at("token-note").textContent = token ? "That was not the token." : "It is kept until this tab is closed.";
    }
    return answer;
  };

  const readModel = async () => {
    const answer = await ask("/model");
    if (!answer.ok) {
      at("model").textContent = answer.status === 401 ? "The service asks for its token." : "The model cannot be asked.";
      return;
    }
    facts = await answer.json();
    at("token").hidden = true;
    const classes = facts.classes.length > 12 ? `${facts.classes.length} classes` : facts.classes.join(", ");
    at("model").textContent = `The model knows ${classes}, and was trained on ${facts.domains.join(", ")}. ` +
      (facts.calibrated ? "Its probabilities are calibrated." : "Its probabilities are not calibrated: it may be too sure.");
    at("about").textContent = facts.name;
    at("keeps").textContent = facts.keeps_images ? "The operator of this service keeps images and predictions. " : "Images are not stored. ";
    at("keeps").append("This page asks nothing of any other host.");
    await readDrift();
  };

  // One line about the image: how far the domains disagree, and how unlike validation images it is.
  const sign = (level, strong, rest) => make("p", { className: `sign ${level}` }, make("b", { textContent: strong }), ` ${rest}`);
  const aboutDisagreement = (value) =>
    value < 0.05 ? sign("usual", "The domains agree", `(disagreement ${value.toFixed(2)}).`)
      : value < 0.3 ? sign("unusual", "The domains differ somewhat", `(disagreement ${value.toFixed(2)}).`)
        : sign("strange", "The domains disagree", `(${value.toFixed(2)}): worth checking.`);
  const aboutOutlier = (entry) => {
    const share = entry.outlier_score === 1 ? "all" : `${percent(entry.outlier_score)} of the`;
    const than = `less usual than ${share} validation images, most of all by its ${entry.most_unusual}`;
    if (entry.outlier_score < 0.9) return sign("usual", "The image looks usual,", `most like those of ${entry.closest_domain}.`);
    return entry.outlier_score < 0.99 ? sign("unusual", "The image looks unusual:", `${than}.`) : sign("strange", "The image is an outlier:", `${than}.`);
  };
  const ranked = (probabilities) => Object.entries(probabilities).sort((a, b) => b[1] - a[1]);

  const showAnswer = (card, entry) => {
    card.body.replaceChildren();
    if (entry.problem) {
      card.body.append(make("p", { className: "problem", textContent: entry.problem }));
      return;
    }
    const classes = make("ul", { className: "bars" });
    for (const [name, share] of ranked(entry.probabilities).slice(0, CLASSES))
      classes.append(make("li", {}, make("span", { textContent: name }), bar(share), make("span", { className: "value", textContent: percent(share) })));
    card.body.append(make("h3", {}, entry.class, " ", make("small", { textContent: percent(entry.confidence) })), classes);
    if (entry.opinions) {
      const opinions = make("ul", { className: "bars" });
      Object.entries(entry.opinions).forEach(([domain, probabilities], place) => {
        const [name, share] = ranked(probabilities)[0];
        opinions.append(make("li", { className: "domain" }, make("span", { textContent: domain }), bar(share, `c${1 + place % 11}`), make("span", { className: "value", textContent: `${name} ${percent(share)}` })));
      });
      card.body.append(make("h4", { textContent: "As if it came from" }), opinions, aboutDisagreement(entry.disagreement));
    }
    if (entry.outlier_score !== undefined) card.body.append(aboutOutlier(entry));
    if (entry.heatmap) {
      const parts = ["the image", "where the model looked", ...Object.keys(entry.opinions || {}).map((domain) => `as if from ${domain}`)];
      card.body.append(make("h4", { textContent: "Where the model looked" }),
        make("img", { className: "heatmap", src: entry.heatmap, alt: parts.join(", ") }), make("p", { className: "fine", textContent: `From left to right: ${parts.join(", ")}.` }));
    }
  };

  const newCard = (file) => {
    const name = file.name || "pasted image";
    const image = make("img", { src: URL.createObjectURL(file), alt: name });
    image.addEventListener("load", () => image.classList.toggle("small", image.naturalWidth < 100));
    image.addEventListener("error", () => { image.hidden = true; });
    const body = make("div", {}, make("p", { className: "fine", textContent: "waiting …" }));
    const remove = make("button", { type: "button", className: "remove", textContent: "Remove", ariaLabel: `Remove ${name}` });
    const card = make("article", { className: "answer" },
      make("figure", { className: "picture" }, image, make("figcaption", { className: "head" }, make("span", { textContent: name }), remove)), body);
    card.body = body;
    card.drop = () => {
      const free = () => URL.revokeObjectURL(image.src);
      if (image.complete) free(); else image.onload = image.onerror = free;
      card.remove();
    };
    remove.addEventListener("click", () => { card.drop(); at("files").focus(); });
    at("answers").prepend(card);
    [...at("answers").children].slice(MOST_CARDS).forEach((old) => old.drop());
    return card;
  };

  const wait = (seconds) => new Promise((done) => setTimeout(done, 1000 * seconds));
  const send = async (file, card) => {
    const form = new FormData();
    form.append("images", file, file.name || "pasted image");
    for (let attempt = 0; ; attempt++) {
      const answer = await ask(facts && facts.has_heatmaps ? "/predict?heatmaps" : "/predict", { method: "POST", body: form });
      if (answer.status === 503 && attempt < 5) {
        await wait(Number(answer.headers.get("Retry-After")) || 1);
        continue;
      }
      const content = await answer.json();
      return content.images ? content.images[0] : { problem: content.problem };
    }
  };
  const work = async () => {
    while (open < AT_A_TIME && wanted.length) {
      const { file, card } = wanted.shift();
      open++;
      send(file, card).catch(() => ({ problem: "The service does not respond." })).then((entry) => {
        showAnswer(card, entry);
        open--;
        sent++;
        const left = open + wanted.length;
        at("status").textContent = left ? `${left} to go` : `${sent} done`;
        if (!left) readDrift();
        work();
      });
    }
  };
  const take = (files) => {
    const images = [...files].filter((file) => file.type.startsWith("image/"));
    at("status").textContent = images.length ? `${images.length} to go` : "That is no image.";
    wanted.push(...images.map((file) => ({ file, card: newCard(file) })));
    work();
  };

  at("files").addEventListener("change", (event) => { take(event.target.files); event.target.value = ""; });
  addEventListener("paste", (event) => {
    const files = event.clipboardData.files;
    if (files.length) { event.preventDefault(); take(files); }
  });
  addEventListener("dragover", (event) => { event.preventDefault(); document.body.classList.add("dragging"); });
  addEventListener("dragleave", (event) => { if (!event.relatedTarget) document.body.classList.remove("dragging"); });
  addEventListener("drop", (event) => {
    event.preventDefault();
    document.body.classList.remove("dragging");
    take(event.dataTransfer.files);
  });
  at("token").addEventListener("submit", (event) => {
    event.preventDefault();
    sessionStorage.setItem("token", at("token-text").value);
    at("token-text").value = "";
    readModel();
  });

  // The drift panel
  const VERDICTS = { "as in training": "clear", "somewhat different": "unclear", "very different": "different" };
  const showDrift = (report) => {
    const level = at("drift-level");
    level.textContent = report.level;
    const verdict = VERDICTS[report.level];
    level.className = `verdict ${verdict || "untold"}`;
    at("to-drift").className = verdict || "";
    at("to-drift").textContent = verdict ? `Drift: ${report.level}` : "Drift";
    const some = report.images === 1 ? "1 image" : `the latest ${report.images} images`;
    at("drift-text").textContent = report.note || (report.images === 0 ? "No image has been sent yet."
      : report.level === "too few images" ? `Only ${report.images} of the 50 images that a judgement needs so far.`
        : `Compared: ${some} and validation images of ${report.compared_with}.`);
    const body = at("drift-table").querySelector("tbody");
    body.replaceChildren(...(report.measures || []).map((each) => make("tr", {},
      make("th", { scope: "row", textContent: each.measure, title: each.about }),
      make("td", {}, make("span", { className: "difference" }, each.difference.toFixed(2), bar(each.difference, "", each.by_chance))),
      make("td", { className: `level-${each.level.split(" ")[0]}`, textContent: each.level }),
      make("td", { className: "number", textContent: number(each.reference) }),
      make("td", { className: "number", textContent: number(each.now) }))));
    at("drift-table").hidden = !body.children.length;
    at("drift-classes").querySelector("ul").replaceChildren(...(report.classes || []).map((each) => make("li", {},
      `${each.class}: ${percent(each.reference)}, now ${percent(each.now)}`, bar(each.reference, "c0"), bar(each.now))));
    at("drift-classes").hidden = !(report.classes || []).length;
    at("forecast").hidden = !report.forecast;
    if (report.forecast) at("forecast").textContent = report.forecast.text;
  };
  const readDrift = async () => {
    if (document.hidden || facts === null) return;
    const answer = await ask("/drift");
    if (answer.ok) showDrift(await answer.json());
  };
  const quietly = (action) => action().catch(() => { at("status").textContent = "The service does not respond."; });
  setInterval(() => quietly(readDrift), 15000);
  quietly(readModel);
})();
