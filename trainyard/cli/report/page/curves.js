// The charts of all runs: which there are, and the controls that they share.

const kPalette = {
  light: ['#2563c9', '#d9480f', '#0b7f54', '#9c36b5', '#a07400', '#0b7fa0', '#c2255c', '#5c6773'],
  dark: ['#6ea8ff', '#ff9a5c', '#4fd09a', '#d69aff', '#e3b341', '#5ccfe6', '#ff87ab', '#aab4c0'],
};

function is_dark() {
  const theme = document.documentElement.dataset.theme;
  return theme ? theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
}

// Up to eight runs have colours that are told apart by everyone; more go around the circle of hues.
function run_color(index, runs) {
  const palette = kPalette[is_dark() ? 'dark' : 'light'];
  if (runs <= palette.length) return palette[index % palette.length];
  return `hsl(${Math.round(index * 137.508) % 360} 65% ${is_dark() ? 65 : 42}%)`;
}

function phase_of(run, name) {
  return list_of(run.phases).find((each) => each.phase === name);
}

// A curve of a run: what a Chart draws. Null when the run has no such values.
function curve(report, index, phase_name, name) {
  const phase = phase_of(report.runs[index], phase_name);
  const values = phase && list_of(object_of(phase.values)[name]);
  if (!values || !values.some(is_number)) return null;
  const several = report.runs.length > 1, training = phase_name === 'train';
  return {
    run: index,
    dashed: !training,
    label: several ? `${report.runs[index].name}${training ? '' : ' (validation)'}` : training ? 'training' : 'validation',
    legend: training ? 'training' : 'validation',
    color: () => run_color(index, report.runs.length),
    legend_color: several ? () => css('--muted') : undefined,
    points: (axis) => {
      const x = [], y = [];
      list_of(phase[axis]).forEach((at, i) => {
        if (!is_number(at)) return;
        x.push(at);
        y.push(values[i]);
      });
      if (x.some((at, i) => i > 0 && at < x[i - 1])) {
        const order = x.map((_, i) => i).sort((a, b) => x[a] - x[b]);
        return {x: order.map((i) => x[i]), y: order.map((i) => y[i])};
      }
      return {x, y};
    },
  };
}

function curves(report, ...names) {
  return report.runs.flatMap((_, index) => names.map(([phase, name]) => curve(report, index, phase, name))).filter(Boolean);
}

const whole_percents = (value) => `${number(100 * value)} %`;
const kShares = [['input_share', 'waiting for input'], ['compute_share', 'compute'], ['communication_share', 'communication'], ['update_share', 'update']];

// One run: a line for each part of its time. Several: how long each waited for input, and for others.
function share_charts(report) {
  if (report.runs.length > 1) {
    return [['Time waiting for input', 'input_share'], ['Time in communication', 'communication_share']].map(([title, name]) =>
      ({title, series: curves(report, ['train', name]), format: (value) => percent(value), tick: whole_percents, hide: (values) => values.every((value) => !(value > 0.005))}));
  }
  const series = kShares.flatMap(([name, label], place) => {
    const found = curve(report, 0, 'train', name);
    return found ? [{...found, label, legend: label, color: () => run_color(place, kShares.length)}] : [];
  });
  return [{title: 'Shares of time', series, format: (value) => percent(value), tick: whole_percents}];
}

function chart_list(report) {
  const percents = (value) => percent(value, 2);
  const list = [
    {title: 'Loss', series: curves(report, ['train', 'total_loss'], ['train', 'base_loss'], ['train', 'loss'], ['eval', 'loss']), logarithmic: true},
    {title: 'Accuracy', series: curves(report, ['train', 'top_1_accuracy'], ['eval', 'top_1_accuracy']), format: percents, tick: whole_percents},
    {title: 'Learning rate', series: curves(report, ['train', 'learning_rate']), logarithmic: true},
    {title: 'Images per second', series: curves(report, ['train', 'images_per_second'])},
    {title: 'Top-5 accuracy', series: curves(report, ['train', 'top_5_accuracy'], ['eval', 'top_5_accuracy']), format: percents, tick: whole_percents},
    ...share_charts(report),
  ];
  const known = new Set(['total_loss', 'base_loss', 'loss', 'top_1_accuracy', 'top_5_accuracy', 'learning_rate', 'images_per_second',
    'examples_per_second', 'waiting_share', ...kShares.map(([name]) => name)]);
  const others = new Set(report.runs.flatMap((run) => list_of(run.phases).flatMap((phase) =>
    Object.keys(object_of(phase.values)).filter((name) => !known.has(name)).map((name) => JSON.stringify([phase.phase, name])))));
  for (const each of others) {
    const [phase, name] = JSON.parse(each);
    list.push({title: phase === 'train' ? name : `${name} (${phase})`, series: curves(report, [phase, name]), logarithmic: true});
  }
  return list.filter((each) => each.series.length > 0 &&
    !(each.hide && each.series.every((one) => each.hide(one.points('step').y.filter(is_number)))));
}

function set_zoom(range) {
  view.zoom = range;
  const reset = document.getElementById('reset-zoom');
  if (reset) reset.disabled = range === null;
  announce(range ? `Shows ${axis_text(range[0], view.axis)} to ${axis_text(range[1], view.axis)}` : 'Shows all');
  redraw_all();
}

function choice(name, options, chosen, change) {
  return el('fieldset', {class: 'choice'}, el('legend', {class: 'offscreen'}, name), options.map(([value, label]) =>
    el('label', {}, el('input', {type: 'radio', name, value, checked: value === chosen, onchange: () => change(value)}), el('span', {}, label))));
}

function curve_controls() {
  const shown = el('output', {for: 'smoothing'}, view.smoothing.toFixed(2));
  const slider = el('input', {id: 'smoothing', type: 'range', min: 0, max: 0.99, step: 0.01, value: view.smoothing, oninput: (event) => {
    view.smoothing = Number(event.target.value);
    shown.textContent = view.smoothing.toFixed(2);
    redraw_all();
  }});
  const reset = el('button', {type: 'button', id: 'reset-zoom', disabled: view.zoom === null, onclick: () => set_zoom(null)}, 'Show all');
  return el('div', {class: 'controls'},
    choice('axis', [['step', 'Step'], ['epoch', 'Epoch'], ['time', 'Time']], view.axis, (value) => {
      view.axis = value;
      set_zoom(null);
    }),
    el('label', {class: 'slider'}, 'Smoothing ', slider, shown), reset);
}

// The runs' colours, each a switch. With many runs the table of runs has the switches.
function run_chips(report) {
  const kMost = 16;
  if (report.runs.length < 2 || report.runs.length > kMost) return null;
  return el('div', {class: 'chips', role: 'group', 'aria-label': 'Runs that are shown'}, report.runs.map((run, index) => run_switch(report, index, run.name)));
}

const run_switches = new Map();  // index of a run -> its checkboxes

function run_switch(report, index, label) {
  const box = el('input', {type: 'checkbox', checked: !view.hidden.has(index), 'aria-label': `Show ${report.runs[index].name} in the curves`,
    onchange: () => show_run(index, box.checked)});
  if (!run_switches.has(index)) run_switches.set(index, []);
  run_switches.get(index).push(box);
  const swatch = el('span', {class: 'swatch'});
  const paint = () => { swatch.style.background = run_color(index, report.runs.length); };
  paint();
  repaint.push(paint);
  const node = el('label', {class: label === undefined ? 'switch' : 'chip'}, box, swatch, label);
  node.addEventListener('pointerenter', () => highlight(index));
  node.addEventListener('pointerleave', () => highlight(null));
  return node;
}

const repaint = [];  // called when the colours have changed

function show_run(index, shown) {
  if (shown) view.hidden.delete(index);
  else view.hidden.add(index);
  for (const box of run_switches.get(index) || []) box.checked = shown;
  redraw_all();
}

function highlight(index) {
  view.highlighted = index;
  for (const chart of charts) if (chart.visible && !chart.stale) chart.draw_over();
}

function curves_section(report) {
  const list = chart_list(report);
  if (list.length === 0) return null;
  const rows = report.runs.flatMap((run) => list_of(run.phases)).reduce((sum, phase) => sum + (phase.rows > list_of(phase.step).length ? phase.rows - phase.step.length : 0), 0);
  return section('Curves', curve_controls(), run_chips(report),
    el('p', {class: 'hint screen'}, 'Drag over a chart to zoom in all of them, double-click to show all. Dashed: validation.'),
    el('div', {class: 'charts'}, list.map((each) => new Chart(each).element)),
    rows > 0 ? el('p', {class: 'note'}, `${count(rows)} rows lie between those that are drawn; of each stretch the extremes are kept. The runs' metrics.csv have all.`) : null);
}
