// The search of this site. It runs in the browser, on `search-index.js`, and asks no server.
//
// Every section of a page is a document of BM25F: words in the title of the page, in its keywords,
// and in the heading weigh more than words in the text. A page is ranked by its best section.
// In a shell: node search.js "words to look for"
"use strict";

(function (root) {
  const FIELD_WEIGHTS = { title: 5, keywords: 4, heading: 6, text: 1 };
  // Words in the title and keywords of a page count less for its later sections.
  const INHERITED = 0.45;
  const K1 = 1.2;
  const B = 0.6;
  // Pages for those who work on the library, and lists of everything, are rarely what a question is about.
  const PART_WEIGHTS = { "Work on it": 0.45, Reference: 0.8, Spark: 0.75 };
  const PAGE_WEIGHTS = {
    "reference/api.html": 0.6,
    "migration/aiokafka-names.html": 0.6,
    "telemetry-metrics.html": 0.6,
    "promises.html": 0.75,
    "glossary.html": 0.75,
  };
  const STOP_WORDS = new Set(
    ("a an and any are as at be because but by can could did do does for from get got had has have how i if in into is it " +
      "its just me my mine of on one or our own please should so some than that the their them then there these they this " +
      "those to us use used using want was way we were what when where which while who why will with without would you your " +
      "am been being make makes possible need needs whether work works know after about kafka python asyncio aiokclient").split(" ")
  );
  // What other clients and newcomers call the same things.
  const SYNONYMS = {
    message: ["record"],
    messages: ["record"],
    event: ["record"],
    publish: ["send", "produce"],
    write: ["send", "produce"],
    emit: ["send"],
    subscribe: ["consume", "read"],
    receive: ["read", "consume"],
    listen: ["read", "consume"],
    fetch: ["read"],
    shutdown: ["stop", "end"],
    terminate: ["stop", "end"],
    exit: ["stop", "end"],
    quit: ["stop"],
    sigterm: ["signal", "stop"],
    auth: ["login", "authentication", "security"],
    authenticate: ["login", "authentication"],
    authentication: ["login"],
    credential: ["login", "password"],
    ssl: ["tls"],
    certificate: ["tls"],
    acl: ["permission", "authorization"],
    permission: ["acl"],
    dlq: ["dead", "letter"],
    poison: ["dead", "letter"],
    k8s: ["kubernetes"],
    healthcheck: ["health", "check", "probe"],
    alive: ["health", "live"],
    ping: ["health", "reach"],
    pod: ["kubernetes"],
    eos: ["exactly", "once"],
    duplicate: ["exactly", "once", "idempotent"],
    deduplicate: ["exactly", "once"],
    ack: ["acknowledge"],
    offset: ["position"],
    rewind: ["seek"],
    replay: ["seek"],
    speed: ["fast", "throughput"],
    slow: ["latency"],
    performance: ["benchmark", "throughput"],
    mock: ["embedded", "test"],
    fake: ["embedded", "test"],
    unittest: ["pytest", "test"],
    testcontainers: ["pytest", "embedded"],
    docker: ["container"],
    crash: ["fail"],
    exception: ["error"],
    hang: ["timeout"],
    stuck: ["timeout"],
    oom: ["memory"],
    ram: ["memory"],
    backpressure: ["memory", "full", "drain"],
    parallel: ["concurrent"],
    concurrency: ["concurrent"],
    serialize: ["serializer"],
    monitor: ["metric"],
    observability: ["metric", "trace"],
    tracing: ["trace"],
    cli: ["command"],
    terminal: ["command"],
    config: ["option"],
    configuration: ["option"],
    setting: ["option"],
    parameter: ["option"],
    migrate: ["move", "migration"],
    switch: ["move", "migration"],
    port: ["move", "migration"],
    datetime: ["time"],
    timestamp: ["time"],
    date: ["time"],
    jupyter: ["notebook"],
    multithread: ["thread"],
    threading: ["thread"],
    blocking: ["thread", "block"],
    install: ["pip"],
  };
  const ADDED_WEIGHT = 0.45;
  const WORD = /[A-Za-z0-9][A-Za-z0-9_]*(?:[.-][A-Za-z0-9_]+)*/g;
  // The characters of an excerpt, and the most of them before the first word that was looked for.
  const EXCERPT = 220;
  const LEAD = 80;

  /** Return a word without its ending, so that "committing" finds "commits". */
  function stem(word) {
    if (word.length < 4 || /\d/.test(word)) return word;
    let result = word.replace(/(?:sses)$/, "ss").replace(/ies$/, "y");
    if (/[^su]s$/.test(result)) result = result.slice(0, -1);
    for (const ending of ["ization", "ations", "ation", "ition", "tion", "ing", "ed", "er", "or", "ment", "ly", "able", "ness"]) {
      if (result.endsWith(ending) && result.length - ending.length >= 3) {
        result = result.slice(0, -ending.length);
        if (/([bdfglmnprt])\1$/.test(result) && result.length > 3 && !/(ll|ss)$/.test(result)) result = result.slice(0, -1);
        break;
      }
    }
    if (result.endsWith("e") && result.length > 4) result = result.slice(0, -1);
    if (result.endsWith("y") && result.length > 4) result = result.slice(0, -1) + "i";
    if (result.endsWith("iz")) result = result.slice(0, -2) + "is";
    return result;
  }

  /** Return the words of a text, lower case. Names such as auto_offset_reset give their parts, too. */
  function words(text) {
    const found = [];
    for (const match of text.matchAll(WORD)) {
      const whole = match[0];
      const parts = whole
        .replace(/([a-z0-9])([A-Z])/g, "$1 $2")
        .split(/[\s_.-]+/)
        .map((part) => part.toLowerCase())
        .filter(Boolean);
      const joined = whole.toLowerCase().replace(/[.-]/g, "_");
      if (parts.length > 1 && !/-/.test(whole)) found.push(joined);
      found.push(...parts);
    }
    return found;
  }

  function stems(text) {
    return words(text).map((word) => (word.includes("_") ? word : stem(word)));
  }

  /** Return whether two words differ by one letter that is added, left out, changed, or swapped. */
  function isNear(a, b) {
    if (Math.abs(a.length - b.length) > 1) return false;
    let start = 0;
    while (start < a.length && a[start] === b[start]) start++;
    let end = 0;
    while (end < Math.min(a.length, b.length) - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
    const left = a.length - start - end;
    const right = b.length - start - end;
    if (left <= 1 && right <= 1) return true;
    return left === 2 && right === 2 && a[start] === b[start + 1] && a[start + 1] === b[start];
  }

  class Search {
    constructor(index) {
      this.pages = index.pages;
      this.sections = index.sections;
      this.postings = new Map();
      const fields = this.sections.map((section, number) => this.fieldsOf(section, number));
      this.lengths = fields.map((field) => field.text.length);
      this.meanLength = this.lengths.reduce((sum, each) => sum + each, 0) / Math.max(1, fields.length);
      fields.forEach((field, number) => this.add(field, number));
    }

    fieldsOf(section, number) {
      const page = this.pages[section.page];
      const isFirst = number === 0 || this.sections[number - 1].page !== section.page;
      return {
        isFirst,
        title: stems(page.title),
        keywords: stems(page.keywords),
        heading: stems(section.heading),
        text: stems(section.text),
      };
    }

    add(field, number) {
      const weights = new Map();
      const norm = 1 - B + (B * this.lengths[number]) / this.meanLength;
      for (const name of ["title", "keywords", "heading", "text"]) {
        const inherited = (name === "title" || name === "keywords") && !field.isFirst ? INHERITED : 1;
        const counts = new Map();
        for (const word of field[name]) counts.set(word, (counts.get(word) || 0) + 1);
        for (const [word, count] of counts) {
          // Keywords are lists: a word that is in several phrases does not count more often.
          const times = name === "text" ? count / norm : 1;
          weights.set(word, (weights.get(word) || 0) + FIELD_WEIGHTS[name] * inherited * times);
        }
      }
      for (const [word, weight] of weights) {
        if (!this.postings.has(word)) this.postings.set(word, []);
        this.postings.get(word).push([number, weight]);
      }
    }

    /** Return the words of a query with their weights, in groups: a word, and words that mean the same. */
    termsOf(query) {
      let found = words(query).filter((word) => !STOP_WORDS.has(word));
      if (!found.length) found = words(query);
      const groups = [];
      for (const word of new Set(found)) {
        const group = new Map();
        const own = word.includes("_") ? word : stem(word);
        if (this.postings.has(own)) group.set(own, 1);
        else for (const [near, weight] of this.nearTo(own)) group.set(near, weight);
        const singular = word.replace(/s$/, "");
        for (const other of SYNONYMS[word] || SYNONYMS[singular] || []) {
          const added = stem(other);
          if (!group.has(added) && this.postings.has(added)) group.set(added, ADDED_WEIGHT);
        }
        if (group.size) groups.push(group);
      }
      // Two words are often words, and no name.
      for (const name of this.namesIn(query)) groups.push(new Map([[name, name.split("_").length > 2 ? 1 : 0.3]]));
      return groups;
    }

    /** Yield names of the site that the query writes as words, such as "offset out of range". */
    *namesIn(query) {
      const all = words(query).filter((word) => !word.includes("_"));
      for (let start = 0; start < all.length; start++) {
        for (let end = start + 2; end <= Math.min(all.length, start + 6); end++) {
          const name = all.slice(start, end).join("_");
          if (this.postings.has(name)) yield name;
        }
      }
    }

    /** Return words of the site that begin like an unknown word, or differ from it by one letter. */
    *nearTo(word) {
      if (word.length < 3) return;
      for (const known of this.postings.keys()) {
        if (known.startsWith(word)) yield [known, 0.7];
        else if (word.length > 4 && known.length > 3 && isNear(word, known)) yield [known, 0.6];
      }
    }

    scoresOf(group) {
      const scores = new Map();
      const total = this.sections.length;
      for (const [word, weight] of group) {
        const postings = this.postings.get(word);
        const rarity = Math.log(1 + (total - postings.length + 0.5) / (postings.length + 0.5));
        for (const [number, frequency] of postings) {
          const score = (weight * rarity * frequency * (K1 + 1)) / (frequency + K1 * 3);
          if (score > (scores.get(number) || 0)) scores.set(number, score);
        }
      }
      return scores;
    }

    /** Return the pages that fit a query, best first: `{url, title, heading, text, excerpt, score}`. */
    find(query, limit = 20) {
      const groups = this.termsOf(query);
      const totals = new Map();
      const matched = new Map();
      for (const group of groups) {
        for (const [number, score] of this.scoresOf(group)) {
          totals.set(number, (totals.get(number) || 0) + score);
          matched.set(number, (matched.get(number) || 0) + 1);
        }
      }
      const best = new Map();
      for (const [number, total] of totals) {
        const section = this.sections[number];
        const page = this.pages[section.page];
        // A section with all words of the query is better than one with one of them many times.
        const share = matched.get(number) / groups.length;
        const score = total * (0.4 + 0.6 * share) * (PAGE_WEIGHTS[page.url] || PART_WEIGHTS[page.part] || 1);
        const hit = { number, score };
        if (!best.has(section.page)) best.set(section.page, []);
        best.get(section.page).push(hit);
      }
      const hits = [];
      for (const [page, found] of best) {
        found.sort((a, b) => b.score - a.score);
        // Other sections that fit say that the whole page is about the subject.
        const score = found[0].score + 0.12 * (found[1] ? found[1].score : 0);
        hits.push(this.hitOf(page, found.slice(0, 4), score));
      }
      hits.sort((a, b) => b.score - a.score);
      const wanted = new Set(groups.flatMap((group) => [...group.keys()]));
      return hits.slice(0, limit).map((hit) => ({ ...hit, excerpt: excerptOf(hit.text, wanted) }));
    }

    hitOf(page, found, score) {
      const addresses = found.map(({ number }) => {
        const { anchor, heading, text } = this.sections[number];
        const url = this.pages[page].url;
        return { url: anchor ? `${url}#${anchor}` : url, heading, text };
      });
      return { ...addresses[0], title: this.pages[page].title, more: addresses.slice(1), score };
    }
  }

  /** Return the part of a text with the most words that are wanted, in pieces: `{text, isWanted}`. */
  function excerptOf(text, wanted) {
    const found = [];
    for (const match of text.matchAll(WORD)) {
      const own = stems(match[0]).filter((each) => wanted.has(each));
      if (own.length) found.push({ start: match.index, end: match.index + match[0].length, own });
    }
    let first = 0;
    let most = 0;
    found.forEach(({ start }, index) => {
      const within = found.slice(index).filter(({ end }) => end <= start + EXCERPT - LEAD);
      const count = new Set(within.flatMap(({ own }) => own)).size;
      if (count > most) [first, most] = [start, count];
    });
    let from = 0;
    if (first > LEAD) {
      // Begin with the sentence, or with the word.
      const before = text.slice(first - LEAD, first);
      const sentence = before.lastIndexOf(". ");
      from = first - LEAD + (sentence >= 0 ? sentence + 2 : before.indexOf(" ") + 1);
    }
    let to = text.length;
    if (to > from + EXCERPT) to = text.lastIndexOf(" ", from + EXCERPT);
    const pieces = [{ text: from ? "… " : "", isWanted: false }];
    let at = from;
    for (const { start, end } of found) {
      if (start < from || end > to) continue;
      pieces.push({ text: text.slice(at, start), isWanted: false }, { text: text.slice(start, end), isWanted: true });
      at = end;
    }
    pieces.push({ text: text.slice(at, to) + (to < text.length ? " …" : ""), isWanted: false });
    return pieces.filter((each) => each.text);
  }

  function link(href, text) {
    const made = document.createElement("a");
    made.href = href;
    made.textContent = text;
    return made;
  }

  /** Show the results for the address of the page, which has the query as `?q=`. */
  function show() {
    const place = document.getElementById("search-results");
    const query = new URLSearchParams(location.search).get("q") || "";
    for (const input of document.querySelectorAll("input[name=q]")) input.value = query;
    if (!query.trim()) return;
    const hits = new Search(root.SEARCH_INDEX).find(query);
    const count = document.createElement("p");
    count.setAttribute("role", "status");
    count.textContent = hits.length ? `${hits.length} pages for “${query}”, the best first:` : `Nothing was found for “${query}”.`;
    const list = document.createElement("ol");
    for (const hit of hits) {
      const item = document.createElement("li");
      item.append(link(hit.url, hit.heading ? `${hit.title}: ${hit.heading}` : hit.title));
      const text = document.createElement("p");
      for (const piece of hit.excerpt) {
        const part = document.createElement(piece.isWanted ? "mark" : "span");
        part.textContent = piece.text;
        text.append(part);
      }
      item.append(text);
      const more = hit.more.filter((each) => each.heading);
      if (more.length) {
        const also = document.createElement("p");
        also.append("Also: ");
        more.forEach((each, number) => also.append(number ? ", " : "", link(each.url, each.heading)));
        item.append(also);
      }
      list.append(item);
    }
    place.replaceChildren(count, list);
  }

  root.Search = Search;
  if (typeof document !== "undefined") {
    document.addEventListener("DOMContentLoaded", show);
  } else if (typeof module !== "undefined" && typeof require !== "undefined") {
    module.exports = { Search };
    if (require.main === module) {
      require("./search-index.js");
      for (const hit of new Search(root.SEARCH_INDEX).find(process.argv.slice(2).join(" "), 5)) {
        console.log(`${hit.url}  ${hit.title}${hit.heading ? ": " + hit.heading : ""}`);
      }
    }
  }
})(globalThis);
