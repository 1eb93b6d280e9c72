"use strict";
(() => {
  const every = (selector, root = document) => [...root.querySelectorAll(selector)];

  // Tables sort by the value of a cell: numbers highest first, words from A to Z.
  for (const table of every("table")) {
    const body = table.tBodies[0];
    every("thead th", table).forEach((head, place) => {
      const value = (row) => row.cells[place].dataset.value;
      const numeric = [...body.rows].some((row) => row.cells[place].classList.contains("number"));
      if (numeric) head.classList.add("numeric");
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const before = head.getAttribute("aria-sort");
        const down = before ? before === "ascending" : numeric;
        const missing = (row) => value(row) === undefined;
        const order = (a, b) => numeric ? Number(value(a)) - Number(value(b))
          : value(a).localeCompare(value(b), undefined, { numeric: true });
        const rows = [...body.rows].sort((a, b) =>
          missing(a) || missing(b) ? missing(a) - missing(b) : (down ? -1 : 1) * order(a, b));
        every("th", head.parentNode).forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        body.append(...rows);
      });
    });
  }

  // The rule switch works by style alone; where a browser lacks :has(), this does it.
  const showRule = () => {
    const chosen = document.querySelector("#rules input:checked");
    if (chosen && !CSS.supports("selector(:has(*))"))
      every("[data-rule]").forEach((part) => { part.hidden = part.dataset.rule !== chosen.value; });
  };
  every("#rules input").forEach((input) => input.addEventListener("change", showRule));
  showRule();

  // Choose runs: what carries the tag of an unticked box fades or goes.
  for (const chooser of every(".chooser")) {
    chooser.hidden = false;
    const home = chooser.closest("article");
    const choose = () => {
      const hidden = new Set(every("input:not(:checked)", chooser).map((box) => box.value));
      for (const part of every("[data-tags]", home))
        part.classList.toggle("off", part.dataset.tags.split(" ").some((tag) => hidden.has(tag)));
    };
    chooser.addEventListener("change", choose);
    choose();
  }

  // Point at something to read its value. Native titles stay for those without scripts.
  const tip = document.getElementById("tip");
  const show = (text, event) => {
    tip.textContent = text;
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect();
    const x = Math.min(event.clientX + 14, innerWidth - width - 6);
    const y = event.clientY + 18 + height > innerHeight ? event.clientY - height - 10 : event.clientY + 18;
    tip.style.left = `${Math.max(x, 4)}px`;
    tip.style.top = `${Math.max(y, 4)}px`;
  };
  const hide = () => { tip.hidden = true; };
  const readTitles = (svg) => {
    every("title", svg).forEach((title) => {
      title.parentNode.dataset.tip = title.textContent;
      title.remove();
    });
  };

  const short = (value) => Math.abs(value) >= 1000 ? value.toFixed(0) : Number(value.toPrecision(4)).toString();
  const readCurves = (svg, event) => {
    const frame = svg.getScreenCTM();
    const x = (event.clientX - frame.e) / frame.a;
    let nearest = null;
    const curves = every(".curve:not(.off)", svg).map((group) => {
      group.points ??= JSON.parse(group.dataset.values);
      group.places ??= group.querySelector("path").getAttribute("d").slice(1).split("L").map(parseFloat);
      return group;
    });
    for (const group of curves)
      group.places.forEach((place, i) => {
        if (nearest === null || Math.abs(place - x) < Math.abs(nearest.place - x)) nearest = { place, at: group.points[i][0] };
      });
    if (nearest === null) return hide();
    const rows = [];
    for (const group of curves) {
      const point = group.points.reduce((a, b) => Math.abs(b[0] - nearest.at) < Math.abs(a[0] - nearest.at) ? b : a);
      if (Math.abs(point[0] - nearest.at) <= 0.05 * Math.abs(nearest.at) + 1e-9) rows.push(`${group.dataset.label}: ${short(point[1])}${point[2] ? ` (${point[2]} images)` : ""}`);
    }
    if (rows.length > 14) rows.splice(13, rows.length, `… ${rows.length - 13} more`);
    show([`at ${short(nearest.at)}`, ...rows].join("\n"), event);
  };

  document.addEventListener("pointerover", (event) => {
    const svg = event.target.closest("svg[role=img]");
    if (svg && !svg.dataset.read) { svg.dataset.read = "1"; readTitles(svg); }
  });
  document.addEventListener("pointermove", (event) => {
    const svg = event.target.closest("svg[role=img]");
    if (!svg) return hide();
    if (svg.classList.contains("curves")) return readCurves(svg, event);
    const part = event.target.closest("[data-tip]");
    part ? show(part.dataset.tip, event) : hide();
  });
  document.addEventListener("pointerleave", hide);
  addEventListener("scroll", hide, { passive: true });

  // Small panels are enlarged, one by one.
  for (const panel of every(".small .panel")) {
    const title = panel.querySelector("h4");
    const button = document.createElement("button");
    button.type = "button";
    button.setAttribute("aria-expanded", "false");
    button.append(...title.childNodes);
    title.append(button);
    panel.addEventListener("click", () => button.setAttribute("aria-expanded", panel.classList.toggle("large")));
  }

  // Take a figure away: as one SVG file with the colours of paper, or printed alone (to a PDF file).
  const asFile = (figure) => {
    const space = "http://www.w3.org/2000/svg", gap = 20, title = 22;
    const file = document.createElementNS(space, "svg");
    const add = (tag, about, text = "") => {
      const made = document.createElementNS(space, tag);
      for (const [name, value] of Object.entries(about)) made.setAttribute(name, value);
      made.textContent = text;
      file.append(made);
      return made;
    };
    add("style", {}, document.getElementById("paper").textContent);
    const paper = add("rect", { fill: "#ffffff" });
    let x = gap, y = gap, low = y, right = 0;
    const place = (width, height) => {
      if (x > gap && x + width > 740) { x = gap; y = low; }
      const at = { x, y };
      x += width + gap; low = Math.max(low, y + height + gap); right = Math.max(right, x);
      return at;
    };
    for (const item of every(".legend li", figure)) {
      const at = place(34 + 6.5 * item.textContent.length, 0);
      const key = item.querySelector("svg").cloneNode(true);
      for (const [name, value] of Object.entries({ ...at, width: 22, height: 12 })) key.setAttribute(name, value);
      file.append(key);
      add("text", { x: at.x + 28, y: at.y + 10 }, item.textContent.trim());
    }
    x = gap; y = low;
    for (const panel of every(".panel > svg", figure)) {
      const [, , width, height] = panel.getAttribute("viewBox").split(" ").map(Number);
      const at = place(width, height + title);
      add("text", { x: at.x, y: at.y + 12, class: "title" }, panel.parentNode.querySelector("h4")?.textContent ?? "");
      const copy = panel.cloneNode(true);
      for (const [name, value] of Object.entries({ x: at.x, y: at.y + title, width, height, overflow: "visible" })) copy.setAttribute(name, value);
      file.append(copy);
    }
    for (const image of every(".sheet img", figure)) {
      const at = place(96, 112);
      add("image", { ...at, width: 96, height: 96, href: image.src });
      add("text", { x: at.x, y: at.y + 108, class: "tick" }, image.nextElementSibling.textContent);
    }
    for (const [name, value] of Object.entries({ width: right, height: low, viewBox: `0 0 ${right} ${low}` })) file.setAttribute(name, value);
    paper.setAttribute("width", right);
    paper.setAttribute("height", low);
    return new XMLSerializer().serializeToString(file);
  };
  const take = {
    SVG: (figure) => {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([asFile(figure)], { type: "image/svg+xml" }));
      link.download = `${figure.dataset.name}.svg`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    },
    PDF: (figure) => {
      document.body.classList.add("printing-one");
      figure.classList.add("alone");
      print();
    },
  };
  addEventListener("afterprint", () => every(".printing-one, .alone").forEach((part) => part.classList.remove("printing-one", "alone")));
  for (const figure of every("figure.figure")) {
    const takeaway = document.createElement("p");
    takeaway.className = "downloads";
    for (const [name, act] of Object.entries(take)) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = name;
      button.setAttribute("aria-label", `${figure.querySelector("h3").textContent.trim()} as ${name}`);
      button.addEventListener("click", () => act(figure));
      takeaway.append(button);
    }
    figure.querySelector("figcaption").prepend(takeaway);
  }

  // The contents stay in view and tell where one is.
  const seen = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      const link = document.querySelector(`nav a[href="#${target.id}"]`);
      link.setAttribute("aria-current", isIntersecting);
      const list = link.closest("ul");
      if (isIntersecting) list.scrollTo({ left: link.offsetLeft - list.offsetLeft - 20 });
    }
  }, { rootMargin: "-20% 0px -75% 0px" });
  every("nav a").forEach((link) => seen.observe(document.querySelector(link.hash)));
})();
