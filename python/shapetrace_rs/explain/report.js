"use strict";
// The report of one or more compiles. Texts of programs are untrusted: they become text nodes and attributes, never
// markup. Rows have one height, and only those in sight are in the document: 20,000 ops are as quick as 20.
(() => {
  const ROW = 22;
  const OVERSCAN = 12;
  const LONGEST = 700;
  const GRAPH_LIMIT = 400;
  const GRAPH_NEAR = 160;
  const OPEN_BELOW = 400;
  const SVG = "http://www.w3.org/2000/svg";

  const $ = (id) => document.getElementById(id);
  const count = (number) => number.toLocaleString("en-US");
  const plural = (number, word) => `${count(number)} ${word}${number === 1 ? "" : "s"}`;
  const ms = (nanoseconds) => {
    const value = nanoseconds / 1e6;
    return `${value < 10 ? value.toFixed(2) : value < 1000 ? value.toFixed(1) : count(Math.round(value))} ms`;
  };
  const change = (before, after) => (before === after ? count(before) : `${count(before)} → ${count(after)}`);

  function element(tag, properties = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) {
      if (name === "class") made.className = value;
      else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
      else if (value !== null && value !== undefined) made.setAttribute(name, value);
    }
    made.append(...children.filter((child) => child !== null));
    return made;
  }

  function drawn(tag, attributes = {}, ...children) {
    const made = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  }

  async function load() {
    const holder = $("data");
    if (holder.type === "application/json") return JSON.parse(holder.textContent);
    const bytes = Uint8Array.from(atob(holder.textContent.trim()), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  }

  // ---------------------------------------------------------------------------------------------- the trace in hand

  let report = null;
  let strings = [];
  let lowered = [];
  const models = new Map();

  const state = {
    call: -1, model: null, visible: new Int32Array(0), selected: -1, value: null,
    query: "", matches: [], match: -1, reason: null, changes: false, types: false, view: "both", tab: "code", scope: -1,
  };

  // Columns of a call, with what follows from them: owners, ends of subtrees, changes inside.
  function modelOf(index) {
    if (models.has(index)) return models.get(index);
    const call = report.calls[index];
    const ops = call.ops;
    if (!ops) return null;
    const n = ops.depth.length;
    const owner = new Int32Array(n).fill(-1);
    const end = new Int32Array(n);
    const inside = new Int32Array(n);
    const number = [new Int32Array(n), new Int32Array(n)];
    const stack = [];
    let lines = 0;
    for (let i = 0; i < n; i += 1) {
      while (stack.length > ops.depth[i]) end[stack.pop()] = i;
      if (stack.length) owner[i] = stack[stack.length - 1];
      stack.push(i);
      number[0][i] = i + 1;
      number[1][i] = ops.after[i] < 0 ? 0 : (lines += 1);
    }
    while (stack.length) end[stack.pop()] = n;
    for (let i = n - 1; i >= 0; i -= 1) {
      if (owner[i] >= 0) inside[owner[i]] += inside[i] + (ops.after[i] < 0 ? 1 : 0);
    }
    const folded = new Uint8Array(n);
    if (n > OPEN_BELOW) for (let i = 0; i < n; i += 1) if (end[i] > i + 1) folded[i] = 1;
    const values = new Set();
    for (const id of ops.resultIds) values.add(strings[id]);
    for (const id of ops.operandIds) values.add(strings[id]);
    const model = { call, ops, n, owner, end, inside, number, folded, values, top: 0, selected: -1 };
    models.set(index, model);
    return model;
  }

  const fate = (model, i) => report.fates[model.ops.fate[i]];
  const isRemoved = (model, i) => model.ops.after[i] < 0;
  const isChange = (model, i) => fate(model, i) !== "kept";
  const onlyForEffect = (model, i) => (model.ops.flags[i] & 2) !== 0;
  const ids = (model, i, kind) => model.ops[`${kind}Ids`].slice(model.ops[`${kind}Starts`][i], model.ops[`${kind}Starts`][i + 1]);
  const names = (model, i, kind) => ids(model, i, kind).map((id) => strings[id]);

  function passesFilter(model, i) {
    if (state.reason === "changed") return fate(model, i) === "changed";
    if (state.reason === "effect") return onlyForEffect(model, i);
    if (state.reason !== null) return fate(model, i) === state.reason;
    if (state.view === "after" && isRemoved(model, i)) return false;
    return !state.changes || isChange(model, i);
  }

  function updateVisible() {
    const model = state.model;
    if (!model) return;
    const { n, owner, end, folded } = model;
    const filtered = state.reason !== null || state.changes || state.view === "after";
    let wanted = null;
    if (filtered) {
      wanted = new Uint8Array(n);
      for (let i = 0; i < n; i += 1) {
        if (!passesFilter(model, i)) continue;
        for (let j = i; j >= 0 && !wanted[j]; j = owner[j]) wanted[j] = 1;
      }
    }
    const visible = new Int32Array(n);
    let size = 0;
    for (let i = 0; i < n; ) {
      if (wanted && !wanted[i]) { i += 1; continue; }
      visible[size] = i;
      size += 1;
      i = folded[i] ? end[i] : i + 1;
    }
    state.visible = visible.subarray(0, size);
    $("rows").style.height = `${size * ROW}px`;
    $("code").setAttribute("aria-rowcount", size);
    render();
  }

  // Where an op stands among the visible ones, or the nearest visible one before it.
  function placeOf(i) {
    let low = 0;
    let high = state.visible.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (state.visible[middle] <= i) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  // ------------------------------------------------------------------------------------------------ lines of code

  const TOKENS = /("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')|([A-Za-z_][A-Za-z_0-9]*(?:\.[A-Za-z_][A-Za-z_0-9]*)*)(\()?|(\d+(?:\.\d+)?(?:e[+-]?\d+)?)/g;
  const WORDS = new Set(["return", "del", "for", "in", "None", "True", "False", "_"]);

  // The text of a line as spans. `other` is the line on the other side, for what differs.
  function spans(model, text, side, other) {
    const shown = (text.length > LONGEST ? `${text.slice(0, LONGEST)} …` : text).replaceAll("\n", " ⏎ ");
    const pieces = [];
    const known = other === null ? null : new Set(other.match(TOKENS) ?? []);
    let at = 0;
    const push = (piece, kind, title) => { if (piece) pieces.push([piece, kind, title]); };
    for (const found of shown.matchAll(TOKENS)) {
      push(shown.slice(at, found.index), "", null);
      at = found.index + found[0].length;
      const [whole, quoted, word, bracket, digits] = found;
      if (quoted) push(quoted, "s", null);
      else if (digits) push(digits, known && side === "after" && !known.has(whole) ? "n new" : "n", null);
      else {
        let kind = bracket ? "f" : WORDS.has(word) ? "k" : "";
        let title = null;
        if (!bracket && model.values.has(word)) {
          kind = word === state.value ? "v same" : "v";
          const now = model.call.renames[word];
          if (side === "before" && now !== undefined) {
            kind += " renamed";
            title = `${word} is ${now} now`;
          }
        }
        if (known && side === "after" && !known.has(whole)) kind += " new";
        push(word, kind, title);
        if (bracket) push(bracket, "", null);
      }
    }
    push(shown.slice(at), "", null);
    return marked(pieces, shown);
  }

  // The pieces as elements, cut where a match of the search begins or ends.
  function marked(pieces, text) {
    const hits = [];
    if (state.query) {
      const low = text.toLowerCase();
      for (let at = low.indexOf(state.query); at >= 0; at = low.indexOf(state.query, at + state.query.length)) {
        hits.push([at, at + state.query.length]);
      }
    }
    const made = [];
    let start = 0;
    let hit = 0;
    for (const [piece, kind, title] of pieces) {
      const stop = start + piece.length;
      let at = start;
      while (at < stop) {
        while (hit < hits.length && hits[hit][1] <= at) hit += 1;
        const inHit = hit < hits.length && hits[hit][0] <= at;
        const next = Math.min(stop, hit < hits.length ? (inHit ? hits[hit][1] : hits[hit][0]) : stop);
        const part = piece.slice(at - start, next - start);
        const classes = inHit ? `${kind} hit`.trim() : kind;
        if (!classes && !title) made.push(part);
        else {
          const span = element("span", { class: classes, title }, part);
          if (kind.startsWith("v")) span.dataset.value = piece;
          made.push(span);
        }
        at = next;
      }
      start = stop;
    }
    return made;
  }

  function why(model, i) {
    const word = fate(model, i);
    if (word === "kept") return onlyForEffect(model, i) ? "Kept for its effect alone: nothing that stays reads a result of it." : "";
    if (word === "changed") {
      if (model.ops.before[i] !== model.ops.after[i]) return "Changed: it reads or defines other names than before.";
      return model.end[i] > i + 1 ? "Changed inside." : "Changed: a number in the shape of a value has another name.";
    }
    return `Removed (${word}): ${report.reasons[word] ?? ""}`;
  }

  function cell(model, i, side) {
    const removed = isRemoved(model, i);
    const made = element("div", { class: `cell ${side}`, role: "gridcell" });
    const number = model.number[side === "before" ? 0 : 1][i];
    made.append(element("span", { class: "no", "aria-hidden": "true" }, number ? String(number) : ""));
    if (side === "after" && removed) {
      made.setAttribute("aria-label", "removed");
      return made;
    }
    const depth = model.ops.depth[i];
    const steps = Math.min(depth, 24);
    for (let step = 0; step < steps; step += 1) made.append(element("span", { class: "step" }));
    const first = side === (state.view === "after" ? "after" : "before");
    if (model.end[i] > i + 1 && first) {
      const open = !model.folded[i];
      made.append(element("button", { class: "twisty", type: "button", tabindex: "-1", "aria-label": open ? "Fold" : "Open" }, open ? "▾" : "▸"));
    } else made.append(element("span", { class: "leaf" }));
    const before = strings[model.ops.before[i]];
    const after = removed ? null : strings[model.ops.after[i]];
    const text = side === "before" ? before : after;
    const other = removed || before === after ? null : side === "before" ? after : before;
    made.append(element("span", { class: "code" }, ...spans(model, text, side, other)));
    if (state.types && side === "before" && model.ops.types[i] >= 0) {
      made.append(element("span", { class: "types" }, `# ${strings[model.ops.types[i]].slice(0, LONGEST)}`));
    }
    if (first && model.folded[i] && model.inside[i]) {
      made.append(element("span", { class: "badge" }, `−${count(model.inside[i])} inside`));
    }
    if (side === "before" && removed) made.append(element("span", { class: "tag" }, fate(model, i)));
    if (first && onlyForEffect(model, i)) made.append(element("span", { class: "tag" }, "effect"));
    return made;
  }

  function row(model, place) {
    const i = state.visible[place];
    const classes = ["row"];
    if (isRemoved(model, i)) classes.push("removed");
    else if (model.ops.before[i] !== model.ops.after[i]) classes.push("changed");
    if (onlyForEffect(model, i)) classes.push("effect-only");
    if (i === state.selected) classes.push("selected");
    if (state.match >= 0 && state.matches[state.match] === i) classes.push("match");
    const made = element("div", {
      class: classes.join(" "), role: "row", id: `op-${i}`, "aria-level": model.ops.depth[i] + 1,
      "aria-rowindex": place + 1, "aria-selected": i === state.selected, title: why(model, i) || null,
      "aria-expanded": model.end[i] > i + 1 ? String(!model.folded[i]) : null,
    });
    made.dataset.op = i;
    made.style.top = `${place * ROW}px`;
    if (state.view !== "after") made.append(cell(model, i, "before"));
    if (state.view !== "before") made.append(cell(model, i, "after"));
    return made;
  }

  let waiting = false;
  function render() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(renderNow);
  }

  function renderNow() {
    waiting = false;
    const model = state.model;
    if (!model || state.tab !== "code") return;
    const box = $("code");
    const first = Math.max(0, Math.floor(box.scrollTop / ROW) - OVERSCAN);
    const last = Math.min(state.visible.length, Math.ceil((box.scrollTop + box.clientHeight) / ROW) + OVERSCAN);
    const made = [];
    for (let place = first; place < last; place += 1) made.push(row(model, place));
    $("rows").replaceChildren(...made);
    const current = $(`op-${state.selected}`);
    if (current) box.setAttribute("aria-activedescendant", current.id);
    else box.removeAttribute("aria-activedescendant");
  }

  // ----------------------------------------------------------------------------------------- selecting and folding

  function reveal(i) {
    const model = state.model;
    let opened = false;
    for (let j = model.owner[i]; j >= 0; j = model.owner[j]) {
      if (model.folded[j]) { model.folded[j] = 0; opened = true; }
    }
    if (opened) updateVisible();
    if (state.visible[placeOf(i)] !== i) {
      // A filter hides it.
      setFilter(null, false);
      if (state.view === "after" && isRemoved(model, i)) setView("both");
    }
  }

  function select(i, { scroll = true, center = false } = {}) {
    const model = state.model;
    if (!model || i < 0 || i >= model.n) return;
    reveal(i);
    state.selected = model.selected = i;
    if (scroll) {
      const box = $("code");
      const top = placeOf(i) * ROW;
      if (center && (top < box.scrollTop || top + ROW > box.scrollTop + box.clientHeight)) box.scrollTop = top - box.clientHeight / 2;
      else if (top < box.scrollTop) box.scrollTop = top;
      else if (top + ROW > box.scrollTop + box.clientHeight) box.scrollTop = top + ROW - box.clientHeight;
    }
    render();
    showDetails();
    if (state.tab === "graph") lookAt(i);
  }

  function setFolded(i, folded) {
    state.model.folded[i] = folded ? 1 : 0;
    if (folded && state.selected > i && state.selected < state.model.end[i]) state.selected = i;
    updateVisible();
  }

  function foldAll(folded) {
    const model = state.model;
    if (!model) return;
    for (let i = 0; i < model.n; i += 1) model.folded[i] = folded && model.end[i] > i + 1 ? 1 : 0;
    if (folded) while (state.selected >= 0 && model.owner[state.selected] >= 0) state.selected = model.owner[state.selected];
    updateVisible();
    if (state.selected >= 0) select(state.selected, { center: true });
  }

  function setFilter(reason, changes) {
    state.reason = reason;
    state.changes = changes;
    $("changes").checked = changes;
    for (const button of $("reasons").children) button.setAttribute("aria-pressed", String(button.dataset.reason === reason));
    const model = state.model;
    if (model && reason !== null) {
      for (let i = 0; i < model.n; i += 1) {
        if (passesFilter(model, i)) for (let j = model.owner[i]; j >= 0; j = model.owner[j]) model.folded[j] = 0;
      }
    }
    updateVisible();
    $("code").scrollTop = 0;
  }

  function setView(view) {
    state.view = view;
    $("view").value = view;
    $("code-panel").classList.toggle("one", view !== "both");
    const [before, after] = $("columns").children;
    before.hidden = view === "after";
    after.hidden = view === "before";
    updateVisible();
    if (state.tab === "graph") showGraph();
  }

  function nextChange(direction) {
    const model = state.model;
    for (let i = state.selected + direction; i >= 0 && i < model.n; i += direction) {
      if (isRemoved(model, i) || model.ops.before[i] !== model.ops.after[i]) { select(i, { center: true }); return; }
    }
  }

  // ------------------------------------------------------------------------------------------------------- searching

  function search(text) {
    state.query = text.toLowerCase();
    state.matches = [];
    state.match = -1;
    const model = state.model;
    if (model && state.query) {
      const hit = new Map();
      const matches = (id) => {
        if (id < 0) return false;
        if (!hit.has(id)) {
          lowered[id] ??= strings[id].toLowerCase();
          hit.set(id, lowered[id].includes(state.query));
        }
        return hit.get(id);
      };
      const { before, after, types } = model.ops;
      for (let i = 0; i < model.n; i += 1) {
        if (matches(before[i]) || matches(after[i]) || (state.types && matches(types[i]))) state.matches.push(i);
      }
      const from = Math.max(0, state.selected);
      const place = state.matches.findIndex((i) => i >= from);
      if (state.matches.length) state.match = place < 0 ? 0 : place;
    }
    showFound();
    if (state.match >= 0) select(state.matches[state.match], { center: true });
    else render();
  }

  function showFound() {
    const box = $("found");
    box.classList.toggle("none", state.query !== "" && !state.matches.length);
    if (!state.query) box.textContent = "";
    else box.textContent = state.matches.length ? `${count(state.match + 1)} of ${count(state.matches.length)}` : "no match";
  }

  function nextMatch(direction) {
    const size = state.matches.length;
    if (!size) return;
    state.match = (state.match + direction + size) % size;
    showFound();
    select(state.matches[state.match], { center: true });
  }

  // --------------------------------------------------------------------------------------------- the op in hand

  // Who defines and who reads each value, scope by scope.
  function usesOf(model) {
    if (model.uses) return model.uses;
    const uses = { key: (scope, id) => (scope + 1) * strings.length + id, result: new Map(), operand: new Map() };
    for (const kind of ["result", "operand"]) {
      const ids = model.ops[`${kind}Ids`];
      const starts = model.ops[`${kind}Starts`];
      for (let i = 0; i < model.n; i += 1) {
        for (let at = starts[i]; at < starts[i + 1]; at += 1) {
          const key = uses.key(model.owner[i], ids[at]);
          const known = uses[kind].get(key);
          if (known) known.push(i);
          else uses[kind].set(key, [i]);
        }
      }
    }
    model.uses = uses;
    return uses;
  }

  // The ops of the same scope that define (`kind` is "result") or read ("operand") any of these values.
  function related(model, i, ids, kind) {
    const uses = usesOf(model);
    const found = new Set();
    for (const id of ids) for (const j of uses[kind].get(uses.key(model.owner[i], id)) ?? []) found.add(j);
    return [...found].sort((a, b) => a - b);
  }

  function link(model, i, label) {
    return element("button", {
      class: isRemoved(model, i) ? "link gone" : "link", type: "button", title: strings[model.ops.before[i]].slice(0, LONGEST),
      onclick: () => select(i, { center: true }),
    }, label);
  }

  function showDetails() {
    const model = state.model;
    const box = $("details");
    if (!model || state.selected < 0) { box.replaceChildren(); return; }
    const i = state.selected;
    const word = fate(model, i);
    const before = strings[model.ops.before[i]];
    const after = isRemoved(model, i) ? null : strings[model.ops.after[i]];
    const parts = [];
    const kind = isRemoved(model, i) ? "removed" : word === "changed" ? "changed" : onlyForEffect(model, i) ? "effect" : "quiet";
    parts.push(element("p", { class: `fate ${kind}` }, why(model, i) || (model.ops.flags[i] & 1 ? "Kept. It has an effect." : "Kept.")));
    parts.push(element("pre", {}, before));
    if (after !== null && after !== before) parts.push(element("pre", { class: "changed" }, after));
    const results = names(model, i, "result");
    const operands = names(model, i, "operand");
    const line = (title, ops, nothing) => {
      const items = ops.slice(0, 12).map((j) => link(model, j, strings[model.ops.name[j]]));
      if (ops.length > 12) items.push(` and ${count(ops.length - 12)} more`);
      parts.push(element("p", {}, element("span", { class: "quiet" }, `${title} `), ...(ops.length ? items : [nothing])));
    };
    const makers = related(model, i, ids(model, i, "operand"), "result").filter((j) => j < i);
    if (operands.length) line("Reads from", makers, "what the scope was given");
    const readers = related(model, i, ids(model, i, "result"), "operand").filter((j) => j > i);
    if (results.length) line("Read by", readers, model.owner[i] >= 0 ? "no other op of this scope" : "nothing");
    const renamed = [...new Set([...results, ...operands])].filter((name) => model.call.renames[name] !== undefined);
    if (renamed.length) {
      parts.push(element("p", {}, element("span", { class: "quiet" }, "Renamed "), renamed.map((name) => `${name} is ${model.call.renames[name]} now`).join(", ")));
    }
    if (model.ops.types[i] >= 0) parts.push(element("p", {}, element("span", { class: "quiet" }, "Type "), strings[model.ops.types[i]]));
    if (model.ops.source[i] >= 0) parts.push(element("p", {}, element("span", { class: "quiet" }, "From "), strings[model.ops.source[i]]));
    if (model.end[i] > i + 1) {
      parts.push(element("p", {}, element("button", { type: "button", onclick: () => { state.scope = i; setTab("graph"); } }, "Graph of what is inside")));
    }
    box.replaceChildren(...parts);
  }

  // ---------------------------------------------------------------------------------------------------- the calls

  function showCalls() {
    const items = [];
    let compile = -1;
    report.calls.forEach((call, index) => {
      if (report.compiles.length > 1 && call.compile !== compile) {
        compile = call.compile;
        items.push(element("li", { class: "compile" }, report.compiles[compile]));
      }
      const less = call.ops_in + call.nested_in - call.ops_out - call.nested_out;
      const button = element("button", { type: "button", onclick: () => showCall(index), title: call.caller },
        element("span", { class: "number" }, String(index + 1)),
        element("span", { class: "who" }, call.caller.split(".").pop()),
        element("span", { class: "less" }, less ? `−${count(less)}` : ""),
        element("span", { class: "from" }, call.fallback ? "thunder's own pass" : call.provenance ? `after ${call.provenance}` : `${count(call.ops_in)} ops`));
      button.dataset.call = index;
      items.push(element("li", {}, button));
    });
    $("calls").replaceChildren(...items);
  }

  function showCall(index) {
    if (index < 0 || index >= report.calls.length) return;
    if (state.model) state.model.top = $("code").scrollTop;
    const call = report.calls[index];
    const changedCompile = state.call < 0 || report.calls[state.call].compile !== call.compile;
    state.call = index;
    state.model = modelOf(index);
    state.selected = state.model ? state.model.selected : -1;
    state.scope = -1;
    state.value = null;
    for (const button of $("calls").querySelectorAll("button")) {
      const current = Number(button.dataset.call) === index;
      button.setAttribute("aria-current", String(current));
      if (current) button.scrollIntoView({ block: "nearest" });
    }
    showFacts(call);
    showReasons(call);
    const known = state.model !== null;
    for (const id of ["tools", "code-panel", "graph-panel"]) $(id).hidden = !known;
    $("no-ops").hidden = known;
    $("no-ops").textContent = known ? "" : call.fallback
      ? "The optimizer failed on this trace, and thunder's own pass did the work."
      : "What happened to each op of this call was not recorded, and its trace is gone. Compile inside record_calls(details=True), or pass inputs to explain().";
    if (changedCompile) showChart();
    markChart();
    state.reason = null;
    state.changes = false;
    $("changes").checked = false;
    if (known) {
      updateVisible();
      $("code").scrollTop = state.model.top;
      setTab(state.tab);
      if (state.query) search($("search").value);
    }
    showDetails();
  }

  function showFacts(call) {
    const facts = [
      element("span", {}, element("b", {}, call.caller), call.line ? ` line ${call.line}` : ""),
      element("span", {}, element("span", { class: "quiet" }, "ops "), change(call.ops_in, call.ops_out)),
      element("span", {}, element("span", { class: "quiet" }, "inside "), change(call.nested_in, call.nested_out)),
      element("span", { title: `reading ${ms(call.read_ns)}, passes ${ms(call.passes_ns)}, applying ${ms(call.apply_ns)}` },
        element("span", { class: "quiet" }, "took "), ms(call.total_ns)),
    ];
    if (call.thunder_ns !== null) {
      facts.push(element("span", {}, element("span", { class: "quiet" }, "thunder's own pass "), `${ms(call.thunder_ns)}${call.total_ns ? `, ${(call.thunder_ns / call.total_ns).toFixed(1)} times as long` : ""}`));
    }
    facts.push(element("span", {}, element("span", { class: "quiet" }, "level "), call.level));
    if (call.measured !== "in the compile") facts.push(element("span", { class: "quiet" }, `measured ${call.measured}`));
    if (call.fallback) facts.push(element("span", { class: "bad" }, `thunder's own pass did it: ${call.fallback}`));
    $("facts").replaceChildren(...facts);
  }

  function showReasons(call) {
    const model = state.model;
    const items = Object.entries(call.removed).filter(([, number]) => number)
      .map(([reason, number]) => [reason, `${reason} ${count(number)}`, report.reasons[reason] ?? "", "removed"]);
    if (model) {
      let changed = 0;
      let alone = 0;
      for (let i = 0; i < model.n; i += 1) {
        if (fate(model, i) === "changed") changed += 1;
        if (onlyForEffect(model, i)) alone += 1;
      }
      if (changed) items.push(["changed", `changed ${count(changed)}`, "These read or define other names, or something inside them changed.", "changed"]);
      if (alone) items.push(["effect", `kept for an effect ${count(alone)}`, "Nothing that stays reads a result of these.", "effect"]);
    }
    $("reasons").replaceChildren(...items.map(([reason, label, title, kind]) => {
      const button = element("button", { type: "button", class: kind, title, "aria-pressed": "false" }, label);
      button.dataset.reason = reason;
      if (model) button.addEventListener("click", () => setFilter(state.reason === reason ? null : reason, false));
      else button.disabled = true;
      return button;
    }));
  }

  // --------------------------------------------------------------------------------------- ops through the compile

  function showChart() {
    const compile = report.calls[state.call].compile;
    const bars = [];
    let step = 0;
    const steps = report.passes.filter((pass) => pass.compile === compile);
    report.calls.forEach((call, index) => {
      while (step < steps.length && steps[step].calls_before <= index) { bars.push(steps[step]); step += 1; }
      if (call.compile === compile) bars.push({ call: index });
    });
    bars.push(...steps.slice(step));
    $("overview").hidden = bars.length < 2;
    const sizes = bars.map((bar) => {
      if (bar.call === undefined) return [bar.ops, bar.nested, 0];
      const call = report.calls[bar.call];
      return [call.ops_out, call.nested_out, call.ops_in + call.nested_in - call.ops_out - call.nested_out];
    });
    const most = Math.max(1, ...sizes.map((size) => size[0] + size[1] + Math.max(0, size[2])));
    const height = 96;
    const left = 46;
    const room = Math.max(300, ($("chart").clientWidth || 900) - left - 8);
    const width = Math.max(9, Math.min(44, room / bars.length));
    const svg = drawn("svg", { width: left + width * bars.length + 4, height: height + 26, role: "group", "aria-label": "Ops after each pass of the compile" });
    svg.append(drawn("defs", {}, drawn("pattern", { id: "stripes", width: 5, height: 5, patternUnits: "userSpaceOnUse" }, drawn("path", { d: "M0 5L5 0" }))));
    const y = (value) => 8 + height - (value / most) * height;
    for (const value of [0, most / 2, most]) {
      svg.append(drawn("line", { class: "axis", x1: left - 4, x2: left + width * bars.length, y1: y(value), y2: y(value) }));
      const label = drawn("text", { x: left - 8, y: y(value) + 4, "text-anchor": "end" });
      label.textContent = count(Math.round(value));
      svg.append(label);
    }
    bars.forEach((bar, place) => {
      const [ops, nested, gone] = sizes[place];
      const x = left + place * width;
      const thick = Math.max(4, width - 5);
      const group = drawn("g", { class: bar.call === undefined ? "pass" : "call" });
      const rect = (kind, from, to) => {
        if (to > from) group.append(drawn("rect", { class: kind, x: x + (width - thick) / 2, width: thick, y: y(to), height: Math.max(0.5, y(from) - y(to)) }));
      };
      rect("ops", 0, ops);
      rect("inside", ops, ops + nested);
      rect("gone", ops + nested, ops + nested + gone);
      let text = `${bar.name}: ${plural(ops, "op")}, ${count(nested)} inside`;
      if (bar.call !== undefined) {
        const call = report.calls[bar.call];
        text = `#${bar.call + 1} dead code elimination in ${call.caller}: ${change(call.ops_in, call.ops_out)} ops, inside ${change(call.nested_in, call.nested_out)}`;
        group.dataset.call = bar.call;
        group.setAttribute("tabindex", "0");
        group.setAttribute("role", "button");
        group.setAttribute("aria-label", text);
        group.addEventListener("click", () => showCall(bar.call));
        group.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); showCall(bar.call); } });
        const label = drawn("text", { x: x + width / 2, y: height + 22, "text-anchor": "middle" });
        label.textContent = width > 14 || bar.call === state.call ? String(bar.call + 1) : "";
        group.append(label);
      }
      group.append(drawn("rect", { class: "hover", x, width, y: 4, height: height + 8 }));
      const tell = () => { $("chart-caption").textContent = text; };
      group.addEventListener("pointerenter", tell);
      group.addEventListener("focus", tell);
      const title = drawn("title");
      title.textContent = text;
      group.append(title);
      svg.append(group);
    });
    $("chart").replaceChildren(svg);
  }

  function markChart() {
    for (const group of $("chart").querySelectorAll("g")) group.classList.toggle("current", Number(group.dataset.call ?? -1) === state.call);
  }

  // ----------------------------------------------------------------------------------------------------- the graph

  const NODE = { width: 168, height: 40, gapX: 26, gapY: 44 };
  const camera = { x: 0, y: 0, zoom: 1, width: 1, height: 1 };

  // The ops of one scope as nodes in layers. Of a scope with too many, those around the selected op.
  function graphOf(model, scope) {
    const stop = scope < 0 ? model.n : model.end[scope];
    let ops = [];
    for (let j = scope < 0 ? 0 : scope + 1; j < stop; j = model.end[j]) {
      if (state.view !== "after" || !isRemoved(model, j)) ops.push(j);
    }
    const total = ops.length;
    const maker = new Map();
    for (const j of ops) for (const name of names(model, j, "result")) if (!maker.has(name)) maker.set(name, j);
    const makersOf = (j) => [...new Set(names(model, j, "operand").map((name) => maker.get(name)).filter((k) => k !== undefined && k < j))];
    if (total > GRAPH_LIMIT) {
      const near = new Map();
      for (const j of ops) {
        near.set(j, near.get(j) ?? []);
        for (const k of makersOf(j)) { near.get(j).push(k); near.get(k).push(j); }
      }
      let start = state.selected;
      while (start >= 0 && !near.has(start)) start = model.owner[start];
      if (start < 0) start = ops.find((j) => isChange(model, j)) ?? ops[0];
      const chosen = new Set([start]);
      for (const j of chosen) {
        for (const k of near.get(j)) { if (chosen.size >= GRAPH_NEAR) break; chosen.add(k); }
        if (chosen.size >= GRAPH_NEAR) break;
      }
      // What hangs together may be little: then what stands next to it in the trace.
      const place = ops.indexOf(start);
      for (let step = 1; chosen.size < GRAPH_NEAR && step < total; step += 1) {
        for (const j of [ops[place - step], ops[place + step]]) if (j !== undefined && chosen.size < GRAPH_NEAR) chosen.add(j);
      }
      ops = ops.filter((j) => chosen.has(j));
    }
    const nodes = new Map();
    const edges = [];
    for (const j of ops) {
      const kind = isRemoved(model, j) ? "removed" : model.ops.before[j] !== model.ops.after[j] || fate(model, j) === "changed" ? "changed" : "";
      nodes.set(j, {
        id: j, kind: onlyForEffect(model, j) ? `${kind} effect-only` : kind, label: strings[model.ops.name[j]],
        sub: names(model, j, "result").join(", "), title: `${strings[model.ops.before[j]].slice(0, LONGEST)}\n${why(model, j)}`, rank: 0, x: 0,
      });
    }
    for (const j of ops) {
      for (const name of names(model, j, "operand")) {
        const from = maker.get(name);
        if (from !== undefined && from < j) {
          if (nodes.has(from) && !edges.some((edge) => edge.from === from && edge.to === j)) edges.push({ from, to: j, name });
        } else if (total <= GRAPH_LIMIT) {
          const id = `input ${name}`;
          if (!nodes.has(id)) nodes.set(id, { id, kind: "input", label: name, sub: "given", title: `${name}: given to this scope`, rank: -1, x: 0 });
          edges.push({ from: id, to: j, name });
        }
      }
    }
    return { nodes: layered(nodes, edges), edges, total };
  }

  function layered(nodes, edges) {
    const before = new Map();
    const behind = new Map();
    for (const edge of edges) {
      before.set(edge.to, [...(before.get(edge.to) ?? []), edge.from]);
      behind.set(edge.from, [...(behind.get(edge.from) ?? []), edge.to]);
    }
    // Ops come in the order of the trace, so what they read has its rank already.
    for (const node of nodes.values()) {
      if (node.kind !== "input") node.rank = Math.max(0, ...(before.get(node.id) ?? []).map((id) => nodes.get(id).rank + 1));
    }
    for (const node of nodes.values()) {
      if (node.kind === "input") node.rank = Math.min(...behind.get(node.id).map((id) => nodes.get(id).rank)) - 1;
    }
    const lowest = Math.min(0, ...[...nodes.values()].map((node) => node.rank));
    const layers = [];
    for (const node of nodes.values()) (layers[node.rank - lowest] ??= []).push(node);
    const used = layers.filter(Boolean);
    const place = (layer) => layer.forEach((node, index) => { node.x = (index - (layer.length - 1) / 2) * (NODE.width + NODE.gapX); });
    used.forEach(place);
    for (let sweep = 0; sweep < 8; sweep += 1) {
      const down = sweep % 2 === 0;
      for (const layer of down ? used : [...used].reverse()) {
        const pull = new Map(layer.map((node) => {
          const others = (down ? before : behind).get(node.id) ?? [];
          return [node, others.length ? others.reduce((sum, id) => sum + nodes.get(id).x, 0) / others.length : node.x];
        }));
        layer.sort((a, b) => pull.get(a) - pull.get(b));
        // As near to what they belong to as their neighbours allow.
        let right = -Infinity;
        for (const node of layer) { node.x = Math.max(pull.get(node), right); right = node.x + NODE.width + NODE.gapX; }
        // The layer as a whole goes where its most connected ops want to be; dead ends stand aside.
        const weight = (node) => 0.02 + (behind.get(node.id)?.length ?? 0);
        const total = layer.reduce((sum, node) => sum + weight(node), 0);
        const shift = layer.reduce((sum, node) => sum + weight(node) * (pull.get(node) - node.x), 0) / total;
        for (const node of layer) node.x += shift;
      }
    }
    used.forEach((layer, index) => layer.forEach((node) => { node.y = index * (NODE.height + NODE.gapY); }));
    return nodes;
  }

  const clipped = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

  function showGraph() {
    const model = state.model;
    if (!model) return;
    if (state.scope >= 0 && model.end[state.scope] === state.scope + 1) state.scope = -1;
    const { nodes, edges, total } = graphOf(model, state.scope);
    const path = [];
    for (let j = state.scope; j >= 0; j = model.owner[j]) path.unshift(j);
    const crumbs = [element("button", { type: "button", onclick: () => { state.scope = -1; showGraph(); } }, "top level")];
    for (const j of path) crumbs.push(" › ", element("button", { type: "button", onclick: () => { state.scope = j; showGraph(); } }, strings[model.ops.name[j]]));
    const shown = [...nodes.values()].filter((node) => node.kind !== "input").length;
    crumbs.push(` ${plural(total, "op")}${shown < total ? `, the ${count(shown)} around ${state.selected < 0 ? "the first change" : "the selected one"}` : ""}`);
    $("graph-path").replaceChildren(...crumbs);
    const world = drawn("g", { id: "world" });
    const arrow = drawn("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto-start-reverse" });
    arrow.append(drawn("path", { d: "M0 0L8 4L0 8z", fill: "context-stroke" }));
    for (const edge of edges) {
      const from = nodes.get(edge.from);
      const to = nodes.get(edge.to);
      const [x1, y1, x2, y2] = [from.x + NODE.width / 2, from.y + NODE.height, to.x + NODE.width / 2, to.y];
      const bend = Math.min(80, Math.max(20, (y2 - y1) / 2));
      const gone = from.kind.includes("removed") || to.kind.includes("removed");
      const line = drawn("path", { class: gone ? "edge removed" : "edge", d: `M${x1} ${y1}C${x1} ${y1 + bend} ${x2} ${y2 - bend} ${x2} ${y2 - 2}`, "marker-end": "url(#arrow)" });
      line.dataset.from = edge.from;
      line.dataset.to = edge.to;
      const title = drawn("title");
      title.textContent = edge.name;
      line.append(title);
      world.append(line);
    }
    for (const node of nodes.values()) {
      const group = drawn("g", { class: `node ${node.kind}`, transform: `translate(${node.x} ${node.y})` });
      group.dataset.id = node.id;
      group.append(drawn("rect", { width: NODE.width, height: NODE.height, rx: node.kind === "input" ? 20 : 6 }));
      const label = drawn("text", { x: NODE.width / 2, y: 17, "text-anchor": "middle" });
      label.textContent = clipped(node.label, 22);
      const sub = drawn("text", { class: "sub", x: NODE.width / 2, y: 32, "text-anchor": "middle" });
      sub.textContent = clipped(node.sub, 26);
      const title = drawn("title");
      title.textContent = node.title;
      group.append(label, sub, title);
      world.append(group);
    }
    $("graph").replaceChildren(drawn("defs", {}, arrow), world);
    const all = [...nodes.values()];
    camera.left = Math.min(0, ...all.map((node) => node.x));
    camera.width = Math.max(1, ...all.map((node) => node.x + NODE.width)) - camera.left;
    camera.height = Math.max(1, ...all.map((node) => (node.y ?? 0) + NODE.height));
    fit();
    markGraph();
    let inScope = state.selected;
    while (inScope >= 0 && !nodes.has(inScope)) inScope = model.owner[inScope];
    intoSight(inScope);
  }

  function aim() {
    $("world")?.setAttribute("transform", `translate(${camera.x} ${camera.y}) scale(${camera.zoom})`);
  }

  function fit() {
    const box = $("graph").getBoundingClientRect();
    const whole = Math.min((box.width - 40) / camera.width, (box.height - 40) / camera.height);
    camera.zoom = Math.min(1.2, Math.max(0.02, whole));
    // A long trace is to be read from its top rather than seen as a thread.
    if (camera.zoom < 0.45 && (box.width - 40) / camera.width > 0.45) camera.zoom = Math.min(0.8, (box.width - 40) / camera.width);
    camera.x = (box.width - camera.width * camera.zoom) / 2 - camera.left * camera.zoom;
    camera.y = Math.max(20, (box.height - camera.height * camera.zoom) / 2);
    aim();
  }

  function zoomAt(x, y, factor) {
    const zoom = Math.min(4, Math.max(0.02, camera.zoom * factor));
    camera.x = x - ((x - camera.x) * zoom) / camera.zoom;
    camera.y = y - ((y - camera.y) * zoom) / camera.zoom;
    camera.zoom = zoom;
    aim();
  }

  function zoomMiddle(factor) {
    const box = $("graph").getBoundingClientRect();
    zoomAt(box.width / 2, box.height / 2, factor);
  }

  function markGraph() {
    const id = String(state.selected);
    for (const node of $("graph").querySelectorAll(".node")) node.classList.toggle("selected", node.dataset.id === id);
    for (const edge of $("graph").querySelectorAll(".edge")) edge.classList.toggle("near", edge.dataset.from === id || edge.dataset.to === id);
  }

  // Bring an op into sight, in the graph of its own scope.
  function lookAt(i) {
    const find = () => $("graph").querySelector(`.node[data-id="${i}"]`);
    if (state.scope !== state.model.owner[i] || !find()) { state.scope = state.model.owner[i]; showGraph(); }
    markGraph();
    intoSight(i);
  }

  function intoSight(i) {
    const node = $("graph").querySelector(`.node[data-id="${i}"]`);
    if (!node) return;
    const box = $("graph").getBoundingClientRect();
    const at = node.getBoundingClientRect();
    if (at.left < box.left || at.right > box.right) camera.x += box.left + box.width / 2 - (at.left + at.right) / 2;
    if (at.top < box.top || at.bottom > box.bottom) camera.y += box.top + box.height / 2 - (at.top + at.bottom) / 2;
    aim();
  }

  // The graph of the scope that the selected op is in.
  function openGraph() {
    state.scope = state.selected < 0 ? -1 : state.model.owner[state.selected];
    setTab("graph");
  }

  function setTab(tab) {
    state.tab = tab;
    for (const name of ["code", "graph"]) {
      $(`tab-${name}`).setAttribute("aria-selected", String(name === tab));
      $(`${name}-panel`).hidden = name !== tab || !state.model;
    }
    if (tab === "graph") showGraph();
    else render();
  }

  // ------------------------------------------------------------------------------------------------ hands and keys

  const THEMES = ["auto", "light", "dark"];
  function setTheme(theme) {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    $("theme").textContent = `Theme: ${theme}`;
    try { localStorage.setItem("shapetrace-theme", theme); } catch { /* a page in a notebook has no storage */ }
  }
  function nextTheme() {
    setTheme(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme ?? "auto") + 1) % THEMES.length]);
  }

  function codeKey(event) {
    const model = state.model;
    if (!model || !state.visible.length) return false;
    const place = state.selected < 0 ? -1 : placeOf(state.selected);
    const go = (to) => select(state.visible[Math.max(0, Math.min(state.visible.length - 1, to))]);
    const page = Math.max(1, Math.floor($("code").clientHeight / ROW) - 1);
    const i = state.selected;
    switch (event.key) {
      case "ArrowDown": case "j": go(place + 1); return true;
      case "ArrowUp": case "k": go(place < 0 ? 0 : place - 1); return true;
      case "PageDown": go(place + page); return true;
      case "PageUp": go(place - page); return true;
      case "Home": go(0); return true;
      case "End": go(state.visible.length - 1); return true;
      case "ArrowRight":
        if (i >= 0 && model.end[i] > i + 1 && model.folded[i]) setFolded(i, false);
        else if (i >= 0 && model.end[i] > i + 1) go(place + 1);
        return true;
      case "ArrowLeft":
        if (i >= 0 && model.end[i] > i + 1 && !model.folded[i]) setFolded(i, true);
        else if (i >= 0 && model.owner[i] >= 0) select(model.owner[i]);
        return true;
      case "Enter": case " ":
        if (i >= 0 && model.end[i] > i + 1) setFolded(i, !model.folded[i]);
        return true;
      default: return false;
    }
  }

  function graphKey(event) {
    const step = 60;
    switch (event.key) {
      case "ArrowLeft": camera.x += step; break;
      case "ArrowRight": camera.x -= step; break;
      case "ArrowUp": camera.y += step; break;
      case "ArrowDown": camera.y -= step; break;
      default: return false;
    }
    aim();
    return true;
  }

  function pageKey(event) {
    switch (event.key) {
      case "/": $("search").focus(); $("search").select(); return true;
      case "n": if (state.model) nextChange(1); return true;
      case "p": if (state.model) nextChange(-1); return true;
      case "]": showCall(state.call + 1); return true;
      case "[": showCall(state.call - 1); return true;
      case "c": setFilter(null, !state.changes); return true;
      case "g": if (state.model) { if (state.tab === "code") openGraph(); else setTab("code"); } return true;
      case "t": nextTheme(); return true;
      case "?": $("keys").showModal(); return true;
      case "+": case "=": if (state.tab === "graph") zoomMiddle(1.25); return state.tab === "graph";
      case "-": if (state.tab === "graph") zoomMiddle(0.8); return state.tab === "graph";
      case "0": if (state.tab === "graph") fit(); return state.tab === "graph";
      case "j": case "k": case "ArrowDown": case "ArrowUp":
        if (document.activeElement === document.body && state.tab === "code") { $("code").focus(); return codeKey(event); }
        return false;
      default: return false;
    }
  }

  function listen() {
    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || $("keys").open) return;
      const target = event.target;
      if (target instanceof HTMLInputElement && target.type === "search") {
        if (event.key === "Enter") { event.preventDefault(); nextMatch(event.shiftKey ? -1 : 1); }
        if (event.key === "Escape") { event.preventDefault(); target.value = ""; search(""); $("code").focus(); }
        return;
      }
      if (target instanceof HTMLSelectElement) return;
      const handled = (target === $("code") && codeKey(event)) || (target === $("graph") && graphKey(event)) || pageKey(event);
      if (handled) event.preventDefault();
    });
    let later = 0;
    $("search").addEventListener("input", () => {
      clearTimeout(later);
      later = setTimeout(() => search($("search").value), state.model && state.model.n > 5000 ? 120 : 20);
    });
    $("search-on").addEventListener("click", () => nextMatch(1));
    $("search-back").addEventListener("click", () => nextMatch(-1));
    $("changes").addEventListener("change", () => setFilter(null, $("changes").checked));
    $("types").addEventListener("change", () => { state.types = $("types").checked; if (state.query) search($("search").value); render(); });
    $("view").addEventListener("change", () => setView($("view").value));
    $("fold-all").addEventListener("click", () => foldAll(true));
    $("open-all").addEventListener("click", () => foldAll(false));
    $("tab-code").addEventListener("click", () => setTab("code"));
    $("tab-graph").addEventListener("click", openGraph);
    $("theme").addEventListener("click", nextTheme);
    $("help").addEventListener("click", () => $("keys").showModal());
    $("code").addEventListener("scroll", render, { passive: true });
    $("code").addEventListener("click", (event) => {
      const found = event.target.closest(".row");
      if (!found) return;
      const i = Number(found.dataset.op);
      if (event.target.closest(".twisty")) { setFolded(i, !state.model.folded[i]); return; }
      const value = event.target.closest("[data-value]")?.dataset.value ?? null;
      state.value = value === state.value ? null : value;
      select(i, { scroll: false });
    });
    $("code").addEventListener("dblclick", (event) => {
      const found = event.target.closest(".row");
      const i = found ? Number(found.dataset.op) : -1;
      if (i >= 0 && !event.target.closest(".twisty") && state.model.end[i] > i + 1) setFolded(i, !state.model.folded[i]);
    });

    const graph = $("graph");
    let drag = null;
    graph.addEventListener("wheel", (event) => {
      event.preventDefault();
      const box = graph.getBoundingClientRect();
      zoomAt(event.clientX - box.left, event.clientY - box.top, Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015)));
    }, { passive: false });
    graph.addEventListener("pointerdown", (event) => {
      drag = { x: event.clientX, y: event.clientY, left: camera.x, top: camera.y, node: event.target.closest(".node"), moved: false };
      graph.setPointerCapture(event.pointerId);
    });
    graph.addEventListener("pointermove", (event) => {
      if (!drag) return;
      const [dx, dy] = [event.clientX - drag.x, event.clientY - drag.y];
      drag.moved ||= Math.hypot(dx, dy) > 3;
      if (!drag.moved) return;
      camera.x = drag.left + dx;
      camera.y = drag.top + dy;
      aim();
    });
    graph.addEventListener("pointerup", () => {
      const id = drag && !drag.moved && drag.node ? Number(drag.node.dataset.id) : NaN;
      drag = null;
      if (!Number.isNaN(id)) select(id, { center: true });
    });
    graph.addEventListener("pointercancel", () => { drag = null; });
    graph.addEventListener("dblclick", (event) => {
      const id = Number(event.target.closest(".node")?.dataset.id);
      if (!Number.isNaN(id) && state.model.end[id] > id + 1) { state.scope = id; showGraph(); }
    });
    $("zoom-in").addEventListener("click", () => zoomMiddle(1.25));
    $("zoom-out").addEventListener("click", () => zoomMiddle(0.8));
    $("zoom-fit").addEventListener("click", fit);
    new ResizeObserver(() => { render(); }).observe($("code"));
    let resized = 0;
    addEventListener("resize", () => {
      clearTimeout(resized);
      resized = setTimeout(() => { if (report.calls.length) { showChart(); markChart(); } if (state.tab === "graph") fit(); }, 100);
    });
  }

  async function begin() {
    try { setTheme(localStorage.getItem("shapetrace-theme") ?? "auto"); } catch { setTheme("auto"); }
    report = await load();
    strings = report.strings;
    lowered = new Array(strings.length);
    $("title").textContent = report.title;
    $("summary").append(...[report.summary, ...report.notes].map((text) => element("span", {}, text)));
    listen();
    showCalls();
    if (report.calls.length) {
      // The call that says most: the one with known ops that removed most.
      const score = (call) => (call.ops ? 1e9 : 0) + call.ops_in + call.nested_in - call.ops_out - call.nested_out;
      let best = 0;
      report.calls.forEach((call, index) => { if (score(call) > score(report.calls[best])) best = index; });
      showCall(best);
    } else {
      for (const id of ["tools", "code-panel", "graph-panel", "overview"]) $(id).hidden = true;
      $("no-ops").hidden = false;
      $("no-ops").textContent = "No call of dead code elimination was recorded.";
    }
    document.documentElement.dataset.ready = "true";
  }

  begin().catch((error) => {
    $("summary").textContent = `This report cannot be shown: ${error.message}`;
    throw error;
  });
})();
