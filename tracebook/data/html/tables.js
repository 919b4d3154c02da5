// Tables that sort by a click or Enter on a heading; cells without a value stay last.
"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = head.querySelector("button");
    if (!button) return;
    button.addEventListener("click", () => {
      const numeric = !head.classList.contains("text");
      const was = head.getAttribute("aria-sort");
      const down = was ? was === "ascending" : numeric;
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const body = table.tBodies[0];
      const rows = [...body.rows].map((row) => ({ row, value: row.cells[column].dataset.sort }));
      rows.sort((a, b) => {
        if (a.value === undefined || b.value === undefined) {
          return (a.value === undefined) - (b.value === undefined);
        }
        const order = numeric ? a.value - b.value : a.value.localeCompare(b.value);
        return down ? -order : order;
      });
      body.append(...rows.map((entry) => entry.row));
    });
  });
}

// What is wider than the page scrolls; touch screens show no bar, so a line above tells.
for (const box of document.querySelectorAll(".scroll")) {
  const hint = document.createElement("p");
  hint.className = "soft sideways";
  hint.textContent = "Wider than the page: scroll sideways \u2192";
  hint.hidden = true;
  box.before(hint);
  new ResizeObserver(() => { hint.hidden = box.scrollWidth <= box.clientWidth + 1; }).observe(box);
}
