"use strict";
// Sorts a table by the column whose heading is clicked, and filters the rows of a long table by a text.

// The number at the start of a text, such as 81.2 of "81.2 ± 0.4"; NaN if it does not start with one.
function numberOf(text) {
  return parseFloat(text.replace(/,(?=\d{3})/g, ""));
}

// The order of a column's texts, as their indices: numbers by size, other texts by the alphabet, missing ones last, such as
// "–", "– (0 of 5 seeds, 5 diverged)", and a paper's number without one of ours.
function orderOf(texts, sign) {
  const missing = texts.map((text) => /^(?:–|-?$|published )/.test(text));
  const numbers = texts.map(numberOf);
  const numeric = numbers.every((number, i) => missing[i] || !Number.isNaN(number));
  const compared = (a, b) => (numeric ? numbers[a] - numbers[b] : texts[a].localeCompare(texts[b]));
  return texts
    .map((_, i) => i)
    .sort((a, b) => (missing[a] || missing[b] ? missing[a] - missing[b] : sign * compared(a, b)));
}

function sortRows(body, column, sign) {
  const rows = Array.from(body.rows);
  const texts = rows.map((row) => (row.cells[column] ? row.cells[column].textContent.trim() : ""));
  for (const i of orderOf(texts, sign)) body.append(rows[i]);
}

function makeSortable(table) {
  const headings = Array.from(table.tHead.rows[table.tHead.rows.length - 1].cells);
  headings.forEach((heading, column) => {
    const sort = () => {
      const sign = heading.getAttribute("aria-sort") === "descending" ? 1 : -1;
      headings.forEach((other) => other.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", sign < 0 ? "descending" : "ascending");
      sortRows(table.tBodies[0], column, sign);
    };
    heading.tabIndex = 0;
    heading.title = "sort by this column";
    heading.addEventListener("click", sort);
    heading.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(); });
  });
}

function makeFiltered(table) {
  const field = document.createElement("input");
  field.type = "search";
  field.placeholder = "filter these rows";
  field.setAttribute("aria-label", field.placeholder);
  field.addEventListener("input", () => {
    const sought = field.value.toLowerCase();
    for (const row of table.tBodies[0].rows) row.hidden = !row.textContent.toLowerCase().includes(sought);
  });
  table.before(field);
}

if (typeof document !== "undefined") {
  for (const table of document.querySelectorAll("table")) {
    if (!table.tHead || table.tBodies.length !== 1) continue;
    const rows = table.tBodies[0].rows.length;
    if (rows > 1) makeSortable(table);
    if (rows > 9) makeFiltered(table);
  }
}
