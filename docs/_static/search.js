"use strict";

// Ranks pages by BM25 over title, words as people ask, headings and text, in place of Sphinx's search for pages that
// have all words; names of the reference come from Sphinx's index. PAGES is written by docs/_ext/search.py.
(() => {
  const FIELDS = { title: 1.2, asked: 1, heading: 0.3 };  // what a word is worth there; in the text, at most 1
  const COMMON = new Set("a about all am an and any are as at be but by can do does for from get have how i if in into is it its me my no not of on or our so that the their them then there they this to too use using want was we what when where which while why will with you your".split(" "));
  const SHOWN = 30;
  const stemmer = new Stemmer();
  const stems = new Map();

  const stem = (word) => {
    if (!stems.has(word)) stems.set(word, stemmer.stemWord(word));
    return stems.get(word);
  };
  const split = (text) => splitQuery(text.toLowerCase().replace(/[-_]/g, " "));
  const read = (text) => split(text).map(stem);

  // How often each word stands in the text of each page, and what it is worth in title, headings and words as people ask.
  const counted = [];
  const pagesWith = new Map();
  const prepare = () => {
    for (const page of PAGES) {
      const counts = new Map();
      const worth = new Map();
      let length = 0;
      const raise = (text, value) => {
        for (const word of new Set(read(text))) worth.set(word, (worth.get(word) || 0) + value);
      };
      raise(page.title, FIELDS.title);
      raise(page.asked, FIELDS.asked);
      raise(page.sections.map((section) => section[1]).join(" "), FIELDS.heading);
      for (const [, , text, code] of page.sections) {
        for (const word of read(`${text} ${code}`)) counts.set(word, (counts.get(word) || 0) + 1);
        length += text.length;
      }
      for (const word of new Set([...counts.keys(), ...worth.keys()])) pagesWith.set(word, (pagesWith.get(word) || 0) + 1);
      counted.push({ page, counts, worth, length });
    }
  };

  const rarity = (word) => Math.log(1 + PAGES.length / ((pagesWith.get(word) || 0) + 0.5));
  // A word that no page has stands for those that begin with it, or that it begins with: "dataloaders", "augment".
  const alike = (word) => {
    if (pagesWith.has(word) || word.length < 4) return [word];
    const found = [...pagesWith.keys()].filter((each) => each.length > 3 && (each.startsWith(word) || word.startsWith(each)));
    return found.length ? found : [word];
  };

  const rank = (words) => {
    const wanted = [...new Set(words)].map(alike);
    const weights = wanted.map((group) => Math.max(...group.map(rarity)));
    const ideal = weights.reduce((sum, each) => sum + each, 0) || 1;
    const mean = counted.reduce((sum, each) => sum + each.length, 0) / counted.length;
    return counted
      .map(({ page, counts, worth, length }) => {
        let score = 0;
        let covered = 0;
        wanted.forEach((group, i) => {
          const often = Math.max(...group.map((word) => counts.get(word) || 0));
          const raised = Math.max(...group.map((word) => worth.get(word) || 0));
          if (often || raised) covered += weights[i];
          score += weights[i] * (often / (often + 2 * (0.5 + 0.5 * (length / mean))) + raised);
        });
        return { page, score: (score / ideal) * (covered / ideal) ** 2 * page.weight };
      })
      .filter((each) => each.score > 0);
  };

  // The section with most of the words, and of its text the part around the first of them.
  const quote = (page, words) => {
    const wanted = new Set(words.flatMap(alike));
    const has = (text) => [...new Set(read(text))].reduce((sum, word) => sum + (wanted.has(word) ? rarity(word) : 0), 0);
    let best = page.sections[0] || ["", "", "", ""];
    let most = -1;
    for (const section of page.sections) {
      const score = 2 * has(section[1]) + has(section[2]) + 0.5 * has(section[3]);
      if (score > most) [best, most] = [section, score];
    }
    const sentences = best[2].split(/(?<=[.:?!])\s+/);
    let start = 0;
    let mostHere = -1;
    sentences.forEach((_, i) => {
      const score = has(sentences.slice(i, i + 2).join(" "));
      if (score > mostHere) [start, mostHere] = [i, score];
    });
    const text = sentences.slice(start).join(" ");
    return { anchor: best === page.sections[0] ? "" : `#${best[0]}`, heading: best[1], text: text.length > 200 ? text.replace(/^(.{150,200})\s.*$/su, "$1 …") : text };
  };

  const mark = (parent, text, words) => {
    const wanted = new Set(words.flatMap(alike));
    for (const part of text.split(/([\p{Letter}\p{Number}]+)/u)) {
      const isWanted = wanted.has(stem(part.toLowerCase()));
      const node = isWanted ? document.createElement("mark") : document.createTextNode(part);
      if (isWanted) node.textContent = part;
      parent.append(node);
    }
  };

  const show = (href, title, kind, text, words) => {
    const item = document.createElement("li");
    const link = document.createElement("a");
    link.href = href;
    link.textContent = title;
    const label = document.createElement("span");
    label.className = "result-kind";
    label.textContent = kind;
    item.append(link, " ", label);
    if (text) {
      const context = document.createElement("p");
      context.className = "context";
      mark(context, text, words);
      item.append(context);
    }
    Search.output.append(item);
  };

  Search.query = (query) => {
    if (!counted.length) prepare();
    const suffix = DOCUMENTATION_OPTIONS.LINK_SUFFIX;
    const asked = split(query);
    const words = (asked.some((word) => !COMMON.has(word)) ? asked.filter((word) => !COMMON.has(word)) : asked).map(stem);
    const name = query.trim().toLowerCase();
    let results = rank(words);
    for (const [page, full, anchor, descr] of name ? Search.performObjectSearch(name, new Set([name])) : []) {
      const isWhole = full.toLowerCase().split(".").pop() === name && !/method|attribute|property/.test(descr);
      if (isWhole) results = results.filter((each) => !each.page || each.page.name !== page);
      results.push({ score: isWhole ? 4 : 0.05, href: page + suffix + anchor, full, descr });
    }
    results.sort((a, b) => b.score - a.score);
    for (const { page, href, full, descr } of results.slice(0, SHOWN)) {
      if (page) {
        const found = quote(page, words);
        const title = found.anchor ? `${page.title} › ${found.heading}` : page.title;
        show(page.name + suffix + found.anchor, title, page.kind, found.text, words);
      } else show(href, full, "Name", descr, words);
    }
    Search.stopPulse();
    Search.title.textContent = "Search results";
    const count = results.length > SHOWN ? `The first ${SHOWN} of ${results.length} results` : `${results.length} result${results.length === 1 ? "" : "s"}`;
    Search.status.textContent = results.length ? `${count}.` : "No page has these words. Try others, or look at the how-to pages by symptom.";
  };
})();
