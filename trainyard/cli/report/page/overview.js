// What a report begins with: results, the list of runs, and what a person should know.

function values_of(run, phase_name, name) {
  const phase = phase_of(run, phase_name);
  return phase ? list_of(object_of(phase.values)[name]).filter(is_number) : [];
}

function last_of(values) {
  return values.length > 0 ? values[values.length - 1] : NaN;
}

function loss_name(run) {
  const phase = phase_of(run, 'train');
  return ['total_loss', 'base_loss', 'loss'].find((name) => phase && name in object_of(phase.values));
}

// The numbers that runs are compared by.
function results_of(run) {
  const accuracies = values_of(run, 'eval', 'top_1_accuracy');
  const speed = is_number(run.images_per_second) && run.images_per_second > 0 ? run.images_per_second : last_of(values_of(run, 'train', 'images_per_second'));
  const phase = phase_of(run, 'train');
  const elapsed = seconds_between(run.started, run.ended);
  return {
    best: accuracies.length > 0 ? Math.max(...accuracies) : NaN,
    last: last_of(accuracies),
    loss: last_of(values_of(run, 'train', loss_name(run))),
    validation_loss: last_of(values_of(run, 'eval', 'loss')),
    speed,
    step: is_number(run.global_step) && run.status !== 'running' ? run.global_step : phase ? last_of(list_of(phase.step)) : NaN,
    epoch: phase ? last_of(list_of(phase.epoch)) : NaN,
    seconds: Number.isFinite(elapsed) ? elapsed : phase ? last_of(list_of(phase.time)) : NaN,
  };
}

function status_pill(run) {
  const status = text_of(run.status) || 'unknown';
  const known = ['running', 'finished', 'stopped', 'failed'].includes(status) ? status : 'unknown';
  return el('span', {class: `pill ${known}`}, status);
}

function tile(label, value, note) {
  return el('div', {class: 'tile'}, el('dt', {}, label), el('dd', {}, value, note ? el('small', {}, note) : null));
}

function result_tiles(run) {
  const result = results_of(run), tiles = [];
  const add = (known, ...parts) => { if (known) tiles.push(tile(...parts)); };
  add(is_number(result.best), 'Validation accuracy', percent(result.last, 2),
    result.best > result.last ? `best ${percent(result.best, 2)}` : 'the best so far');
  add(is_number(result.loss), 'Training loss', number(result.loss), is_number(result.validation_loss) ? `validation ${number(result.validation_loss)}` : null);
  add(is_number(result.speed), 'Speed', `${number(result.speed)} images/s`,
    is_number(run.model_flops_per_second) ? `${number(run.model_flops_per_second / 1e9)} GFLOP/s of the model${is_number(run.limit_flops_per_second) ? `, ${percent(run.model_flops_per_second / run.limit_flops_per_second, 0)} of the limit` : ''}` : null);
  add(is_number(result.step), 'Steps', count(result.step), is_number(result.epoch) ? `${number(result.epoch)} epochs` : null);
  add(is_number(result.seconds), 'Time', duration(result.seconds), text_of(run.started) ? `from ${date(run.started)}` : null);
  add(is_number(run.peak_memory_bytes), 'Peak memory', bytes(run.peak_memory_bytes), is_number(object_of(run.machine).memory_bytes) ? `of ${bytes(run.machine.memory_bytes)}` : null);
  return el('dl', {class: 'tiles'}, tiles);
}

function run_table(report) {
  const rows = report.runs.map((run, index) => ({run, index, ...results_of(run)}));
  const best = Math.max(...rows.map((row) => (is_number(row.best) ? row.best : -1)));
  const several = (name) => new Set(report.runs.map((run) => text_of(run[name]))).size > 1;
  const columns = [
    {name: 'Run', value: (row) => row.run.name, show: (row) => el('span', {class: 'run-name'}, run_switch(report, row.index), el('span', {title: row.run.path}, row.run.name))},
    {name: 'Status', value: (row) => text_of(row.run.status), show: (row) => status_pill(row.run)},
    several('model') && {name: 'Model', value: (row) => text_of(row.run.model), show: (row) => text_of(row.run.model)},
    several('dataset') && {name: 'Data set', value: (row) => text_of(row.run.dataset), show: (row) => text_of(row.run.dataset)},
    {name: 'Best accuracy', numeric: true, title: 'the highest top-1 accuracy of an evaluation', value: (row) => row.best,
      show: (row) => (row.best === best ? el('strong', {}, percent(row.best, 2)) : percent(row.best, 2))},
    {name: 'Last accuracy', numeric: true, value: (row) => row.last, show: (row) => percent(row.last, 2)},
    {name: 'Training loss', numeric: true, value: (row) => row.loss, show: (row) => number(row.loss)},
    {name: 'Images/s', numeric: true, value: (row) => row.speed, show: (row) => number(row.speed)},
    {name: 'Steps', numeric: true, value: (row) => row.step, show: (row) => count(row.step)},
    {name: 'Time', numeric: true, value: (row) => row.seconds, show: (row) => duration(row.seconds)},
    {name: 'Alerts', numeric: true, value: (row) => list_of(row.run.alerts).length, show: (row) => count(list_of(row.run.alerts).length)},
  ].filter(Boolean);
  const has = rows.some((row) => is_number(row.best));
  const all = (shown) => {
    report.runs.forEach((_, index) => {
      if (shown) view.hidden.delete(index);
      else view.hidden.add(index);
      for (const box of run_switches.get(index) || []) box.checked = shown;
    });
    redraw_all();
  };
  return el('div', {},
    el('div', {class: 'controls'}, el('span', {class: 'hint'}, 'In the curves:'), el('button', {type: 'button', onclick: () => all(true)}, 'All'),
      el('button', {type: 'button', onclick: () => all(false)}, 'None')),
    sortable_table(columns.filter((each) => has || !each.name.includes('accuracy')), rows, {
      caption: 'Runs', quiet: true, filter: (row) => `${row.run.name} ${text_of(row.run.status)} ${text_of(row.run.model)} ${text_of(row.run.dataset)}`,
      row: (line, row) => {
        line.addEventListener('pointerenter', () => highlight(row.index));
        line.addEventListener('pointerleave', () => highlight(null));
      }}));
}

const kLevels = {error: 'Error', warning: 'Warning', note: 'Note'};

function alert_list(report) {
  const several = report.runs.length > 1, kShown = report.runs.length > 1 ? 3 : 12;
  const all = report.runs.flatMap((run) => list_of(run.alerts).map((alert) => ({run, alert})));
  const rank = Object.keys(kLevels);
  all.sort((a, b) => rank.indexOf(a.alert.level) - rank.indexOf(b.alert.level));
  if (all.length === 0) return el('p', {class: 'calm'}, 'No alerts: every step was finite, and nothing held the training back.');
  const item = ({run, alert}) => el('li', {class: `alert ${alert.level in kLevels ? alert.level : 'note'}`},
    el('strong', {}, kLevels[alert.level] || 'Note'), el('div', {}, several ? el('span', {class: 'of-run'}, `${run.name}: `) : null, alert.text,
      alert.advice ? el('span', {class: 'advice'}, ` ${alert.advice}`) : null));
  const list = el('ul', {class: 'alerts'}, all.slice(0, kShown).map(item));
  if (all.length <= kShown) return list;
  return el('div', {}, list, folded(`${all.length - kShown} more ${all.length - kShown === 1 ? 'alert' : 'alerts'}`, () => el('ul', {class: 'alerts'}, all.slice(kShown).map(item))));
}

function overview_section(report) {
  if (report.runs.length === 1) return section('Overview', result_tiles(report.runs[0]), alert_list(report));
  return section('Runs', run_table(report), el('h3', {}, 'Alerts'), alert_list(report));
}
