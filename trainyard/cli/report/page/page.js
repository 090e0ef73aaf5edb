// Reads the data, and puts the page together.

const kSections = [];  // [title, id]

function section(title, ...children) {
  const id = title.toLowerCase().replaceAll(' ', '-');
  kSections.push([title, id]);
  return el('section', {id, 'aria-labelledby': `${id}-title`}, el('h2', {id: `${id}-title`}, title), ...children);
}

// All rows of all runs as one table (RFC 4180).
function csv_of(report) {
  const names = [...new Set(report.runs.flatMap((run) => list_of(run.phases).flatMap((phase) => Object.keys(object_of(phase.values)))))];
  const cell = (value) => {
    const text = value === null || value === undefined ? '' : String(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const lines = [['run', 'phase', 'global_step', 'epoch', 'seconds', ...names].map(cell).join(',')];
  for (const run of report.runs) {
    for (const phase of list_of(run.phases)) {
      const columns = names.map((name) => list_of(object_of(phase.values)[name]));
      list_of(phase.step).forEach((step, i) => {
        lines.push([run.name, phase.phase, step, list_of(phase.epoch)[i], list_of(phase.time)[i], ...columns.map((each) => each[i])].map(cell).join(','));
      });
    }
  }
  return `${lines.join('\r\n')}\r\n`;
}

// What a user has chosen survives the page's loading itself again.
const kKept = 'trainyard-report';

function keep_choices(report) {
  try {
    const hidden = [...view.hidden].map((index) => report.runs[index].path);
    sessionStorage.setItem(kKept, JSON.stringify({axis: view.axis, smoothing: view.smoothing, zoom: view.zoom, hidden, scroll: scrollY,
      theme: document.documentElement.dataset.theme}));
  } catch {
    // A browser that keeps nothing for files.
  }
}

function restore_choices(report) {
  let kept = {};
  try {
    kept = object_of(JSON.parse(sessionStorage.getItem(kKept)));
    sessionStorage.removeItem(kKept);  // they are those of this page, and of no other report
  } catch {
    return 0;
  }
  if (kept.axis in kAxisNames) view.axis = kept.axis;
  if (is_number(kept.smoothing) && kept.smoothing >= 0 && kept.smoothing < 1) view.smoothing = kept.smoothing;
  if (list_of(kept.zoom).length === 2 && kept.zoom.every(is_number)) view.zoom = kept.zoom;
  report.runs.forEach((run, index) => { if (list_of(kept.hidden).includes(run.path)) view.hidden.add(index); });
  if (kept.theme === 'light' || kept.theme === 'dark') document.documentElement.dataset.theme = kept.theme;
  return is_number(kept.scroll) ? kept.scroll : 0;
}

function colors_changed() {
  for (const paint of repaint) paint();
  redraw_all();
}

function theme_button() {
  const names = {undefined: 'Auto', light: 'Light', dark: 'Dark'};
  const button = el('button', {type: 'button', onclick: () => {
    const next = {undefined: 'light', light: 'dark'}[document.documentElement.dataset.theme];
    if (next) document.documentElement.dataset.theme = next;
    else delete document.documentElement.dataset.theme;
    label();
    colors_changed();
  }});
  const label = () => {
    const name = names[document.documentElement.dataset.theme];
    button.textContent = `Theme: ${name}`;
  };
  label();
  return button;
}

function page_head(report) {
  const one = report.runs.length === 1 ? report.runs[0] : null;
  const same = (name) => {
    const found = new Set(report.runs.map((run) => text_of(run[name])));
    return found.size === 1 ? [...found][0] : '';
  };
  const search = only_search(report);
  const title = one ? one.name : search ? `Search ${search.name}` : `${report.runs.length} runs compared`;
  document.title = `${title} – Trainyard report`;
  const about = [[same('model'), same('dataset')].filter(Boolean).join(' on '), same('mode'), `written ${date(report.made)}`].filter(Boolean).join(' · ');
  const tools = el('div', {class: 'tools'},
    el('button', {type: 'button', onclick: () => download('report.csv', 'text/csv', csv_of(report))}, 'CSV'),
    el('button', {type: 'button', onclick: () => download('report.json', 'application/json', document.getElementById('data').textContent)}, 'JSON'),
    el('button', {type: 'button', onclick: () => print()}, 'Print'), theme_button());
  const live = live_switch(report);
  document.getElementById('head').append(el('div', {}, el('p', {class: 'brand'}, 'Trainyard report'), el('h1', {}, title, ' ', one ? status_pill(one) : null),
    el('p', {class: 'about'}, about), one || search ? el('p', {class: 'path'}, (one || search).path) : null, live), tools);
}

// The search of which all runs are trials; null where there is no such.
function only_search(report) {
  if (list_of(report.searches).length !== 1) return null;
  const search = object_of(report.searches[0]), trials = new Set(list_of(search.trials).map((trial) => object_of(trial).run));
  return report.runs.every((_, index) => trials.has(index)) ? search : null;
}

// The page loads itself again while a run goes on.
function live_switch(report) {
  if (!is_number(report.reload_seconds) || report.reload_seconds <= 0) return null;
  const box = el('input', {type: 'checkbox', checked: true});
  setInterval(() => {
    if (!box.checked || document.hidden) return;
    keep_choices(report);
    location.reload();
  }, 1000 * report.reload_seconds);
  return el('label', {class: 'live'}, box, ` Loads itself every ${report.reload_seconds} s`);
}

// On paper all charts are drawn, in light colours.
function print_in_light() {
  let theme;
  addEventListener('beforeprint', () => {
    theme = document.documentElement.dataset.theme;
    document.documentElement.dataset.theme = 'light';
    for (const paint of repaint) paint();
    for (const chart of charts) chart.draw();
  });
  addEventListener('afterprint', () => {
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
    colors_changed();
  });
}

function main() {
  const report = object_of(JSON.parse(document.getElementById('data').textContent));
  report.runs = list_of(report.runs).map(object_of);
  report.settings = list_of(report.settings).map(object_of);
  const scroll = restore_choices(report);
  document.body.append(el('div', {id: 'said', class: 'offscreen', role: 'status', 'aria-live': 'polite'}));
  page_head(report);
  // A search that has just begun has no runs.
  const of_runs = [curves_section, differences_section, time_section, evaluation_section, checkpoints_section, settings_section, repeat_section];
  const made = (report.runs.length > 0 ? [overview_section, search_section, ...of_runs] : [search_section])
    .map((make) => make(report)).filter(Boolean);
  document.getElementById('main').append(...made);
  document.getElementById('sections').append(...kSections.map(([title, id]) => el('a', {href: `#${id}`}, title)));
  print_in_light();
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', colors_changed);
  if (scroll > 0) scrollTo(0, scroll);
  document.documentElement.dataset.ready = 'true';
}

main();
