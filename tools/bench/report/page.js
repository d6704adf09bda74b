// A button for each table: its cells, separated by tabs, go to the clipboard.
document.querySelectorAll("table").forEach((table) => {
  const button = document.createElement("button");
  button.textContent = "copy";
  button.addEventListener("click", () => {
    const text = [...table.rows].map((row) => [...row.cells].map((cell) => cell.textContent).join("\t")).join("\n");
    const done = () => { button.textContent = "copied"; };
    const selected = () => { getSelection().selectAllChildren(table); document.execCommand("copy"); done(); };
    if (navigator.clipboard) navigator.clipboard.writeText(text).then(done, selected); else selected();
  });
  table.closest("figure").querySelector("figcaption").append(button);
});
