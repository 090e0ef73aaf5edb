// A table that sorts by a click on a column's head, and filters when it is long.
//
// columns: [{name, value(row) to sort by, show(row) text or node; numeric, title}]. Options: caption, filter (text of a
// row), sorted (index of the column that it is sorted by at first, descending when `down`), row (called with each <tr>),
// tall (scrolls by itself), quiet (the caption is for screen readers: a heading says it). Columns of numbers without any
// number are left out, unless `sorted` counts on them.

function sortable_table(columns, rows, {caption, filter, sorted, down = false, row: decorate, tall = true, quiet = false} = {}) {
  let column = sorted, descending = down, wanted = '';
  const missing = (value) => value === null || value === undefined || Number.isNaN(value) || value === '';
  if (sorted === undefined) columns = columns.filter((each) => !each.numeric || rows.some((row) => !missing(each.value(row))));
  const body = el('tbody');
  const heads = columns.map((each, index) => {
    const button = el('button', {type: 'button', onclick: () => sort_by(index), title: each.title}, each.name);
    return el('th', {scope: 'col', class: each.numeric ? 'numeric' : null}, button);
  });
  const made = new Map();  // a row's <tr>, which holds what a user has set in it

  function element_of(row) {
    if (!made.has(row)) {
      const cells = columns.map((each, index) =>
        el(index === 0 ? 'th' : 'td', {scope: index === 0 ? 'row' : null, class: each.numeric ? 'numeric' : null}, each.show(row)));
      const line = el('tr', {}, cells);
      if (decorate) decorate(line, row);
      made.set(row, line);
    }
    return made.get(row);
  }

  function compare(a, b) {
    const x = columns[column].value(a), y = columns[column].value(b);
    if (missing(x) || missing(y)) return Number(missing(x)) - Number(missing(y));  // at the end in both orders
    const order = typeof x === 'number' && typeof y === 'number' ? x - y : String(x).localeCompare(String(y), 'en', {numeric: true});
    return descending ? -order : order;
  }

  function fill() {
    let shown = rows;
    if (wanted) shown = shown.filter((row) => filter(row).toLowerCase().includes(wanted));
    if (column !== undefined) shown = [...shown].sort(compare);
    body.replaceChildren(...shown.map(element_of));
    heads.forEach((head, index) => {
      if (index === column) head.setAttribute('aria-sort', descending ? 'descending' : 'ascending');
      else head.removeAttribute('aria-sort');
    });
  }

  function sort_by(index) {
    descending = index === column ? !descending : Boolean(columns[index].numeric);
    column = index;
    fill();
    announce(`Sorted by ${columns[index].name}, ${descending ? 'descending' : 'ascending'}`);
  }

  fill();
  const table = el('table', {}, caption ? el('caption', {}, quiet ? el('span', {class: 'offscreen'}, caption) : caption) : null, el('thead', {}, el('tr', {}, heads)), body);
  const frame = el('div', {class: tall ? 'table tall' : 'table', tabindex: '0', role: 'region', 'aria-label': caption || 'Table'}, table);
  if (!filter || rows.length <= 12) return frame;
  const search = el('input', {type: 'search', placeholder: 'Filter', 'aria-label': `Filter: ${caption}`, oninput: (event) => {
    wanted = event.target.value.toLowerCase();
    fill();
    announce(`${body.children.length} rows`);
  }});
  return el('div', {}, el('div', {class: 'filter'}, search), frame);
}

// A table of names and values.
function fact_table(facts, caption) {
  const rows = facts.filter(([, value]) => value !== undefined && value !== null && value !== '' && value !== '–');
  return el('div', {class: 'table'}, el('table', {class: 'facts'}, caption ? el('caption', {}, caption) : null,
    el('tbody', {}, rows.map(([name, value]) => el('tr', {}, el('th', {scope: 'row'}, name), el('td', {}, value))))));
}

// Contents that are made when they are first opened.
function folded(title, make) {
  const box = el('details', {ontoggle: () => {
    if (box.open && box.childElementCount === 1) box.append(make());
  }}, el('summary', {}, title));
  return box;
}
