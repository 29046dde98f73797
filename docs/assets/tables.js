// Short names are not broken at their hyphens, long ones after a slash.
document$.subscribe(() => {
  for (const code of document.querySelectorAll(".md-typeset :not(pre) > code")) {
    const isShort = code.textContent.length <= 34;
    code.classList.toggle("short", isShort);
    if (!isShort) {
      code.replaceChildren(...code.textContent.split(/(?<=\/)/).flatMap((part) => [part, document.createElement("wbr")]));
    }
  }
});
// On a phone, each row of a table becomes a block. The style sheet prints the heading of its column before each cell.
document$.subscribe(() => {
  for (const table of document.querySelectorAll(".md-typeset table:not([class])")) {
    const heads = Array.from(table.querySelectorAll("thead th"), (head) => head.textContent.trim());
    for (const row of table.querySelectorAll("tbody tr")) {
      Array.from(row.children).forEach((cell, column) => {
        if (column > 0 && heads[column]) {
          cell.dataset.label = heads[column];
        }
      });
    }
  }
});
