/**
 * @file The only script of a report: it sorts tables, and unfolds sections for printing. The page works without it.
 *
 * It writes no markup and reads only cell texts. The page's content security policy allows this script alone, by hash.
 */

export const PAGE_SCRIPT = `
"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  const body = table.tBodies[0];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const keyed = [...body.rows].map((row) => {
        const cell = row.cells[column];
        const text = cell.dataset.v ?? cell.textContent.trim();
        return { row, text, number: text === "" ? NaN : Number(text) };
      });
      const numbers = keyed.every((k) => k.text === "" || !Number.isNaN(k.number));
      keyed.sort((a, b) => {
        if (a.text === "" || b.text === "") return Number(a.text === "") - Number(b.text === "");
        const order = numbers ? a.number - b.number : a.text.localeCompare(b.text, "en", { numeric: true });
        return up ? order : -order;
      });
      body.append(...keyed.map((k) => k.row));
    });
  });
}
let folded = [];
addEventListener("beforeprint", () => {
  folded = [...document.querySelectorAll("details:not([open])")];
  for (const part of folded) part.open = true;
});
addEventListener("afterprint", () => {
  for (const part of folded) part.open = false;
});
`;
