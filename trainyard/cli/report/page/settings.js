// Settings, what differs between the runs' settings, time, machines, checkpoints and commands.

const kOwnByEachRun = new Set(['train_dir', 'benchmark_log_dir', 'trace_file', 'tfprof_file', 'graph_file', 'eval_dir']);

function value_text(value) {
  if (value === null || value === undefined) return '–';
  if (typeof value === 'number') return String(value);
  if (typeof value === 'string') return value === '' ? '""' : value;
  if (Array.isArray(value)) return value.length === 0 ? '–' : value.map(value_text).join(', ');
  return typeof value === 'boolean' ? String(value) : JSON.stringify(value);
}

function setting_of(setting, run) {
  const values = list_of(setting.values);
  return values.length === 1 ? values[0] : values[run];
}

// What differs is shown with what became of it: a column for each setting, a row for each run, or the other way round
// where there are few runs.
function differences_section(report) {
  if (report.runs.length < 2) return null;
  const differing = report.settings.filter((each) => list_of(each.values).length > 1 && !(each.group === 'flag' && kOwnByEachRun.has(each.name)));
  if (differing.length === 0) return section('What differs', el('p', {}, 'All runs have the same settings, versions and machine.'));
  // What the program chose is named only where no flag says the same.
  const flags = new Set(differing.filter((each) => each.group === 'flag').map((each) => each.name));
  const shown = differing.filter((each) => each.group !== 'chosen' || !flags.has(each.name));
  const name_of = (each) => (each.group === 'flag' ? each.name : `${each.name} (${each.group})`);
  const kFew = 6;
  if (report.runs.length <= kFew) {
    const columns = [{name: 'Setting', value: name_of, show: name_of}, ...report.runs.map((run, index) =>
      ({name: run.name, value: (each) => value_text(setting_of(each, index)), show: (each) => difference_cell(each, index)}))];
    return section('What differs', sortable_table(columns, shown, {caption: 'Settings that differ', tall: false, quiet: true}));
  }
  const rows = report.runs.map((run, index) => ({run, index, ...results_of(run)}));
  const columns = [
    {name: 'Run', value: (row) => row.run.name, show: (row) => row.run.name},
    {name: 'Best accuracy', numeric: true, value: (row) => row.best, show: (row) => percent(row.best, 2)},
    {name: 'Training loss', numeric: true, value: (row) => row.loss, show: (row) => number(row.loss)},
    ...shown.map((each) => ({name: name_of(each), numeric: typeof list_of(each.values).find((value) => value !== null) === 'number',
      value: (row) => setting_of(each, row.index), show: (row) => difference_cell(each, row.index)})),
  ];
  return section('What differs', sortable_table(columns, rows, {caption: 'Settings that differ, by run', quiet: true, filter: (row) => row.run.name}));
}

// Bold: the command line or a file has set it.
function difference_cell(setting, run) {
  const text = value_text(setting_of(setting, run));
  return list_of(setting.given).includes(run) ? el('strong', {title: 'given'}, text) : text;
}

const kParts = [['input', 'waiting for input'], ['compute', 'compute'], ['communication', 'communication'], ['update', 'update']];

function share_bar(shares) {
  const bar = el('div', {class: 'bar', 'aria-hidden': 'true'});
  kParts.forEach(([name], place) => {
    const share = shares[name];
    if (!(share > 0)) return;
    const part = el('span', {title: `${name} ${percent(share)}`});
    part.style.width = `${Math.min(100, 100 * share)}%`;
    const paint = () => { part.style.background = run_color(place, kParts.length); };
    paint();
    repaint.push(paint);
    bar.append(part);
  });
  return bar;
}

function time_section(report) {
  const rows = report.runs.map((run, index) => ({run, index, shares: object_of(run.time_shares), ...results_of(run)}));
  const timed = rows.filter((row) => is_number(row.shares.compute) && row.shares.compute + (row.shares.input || 0) > 0);
  const waits = timed.some((row) => row.shares.waiting > 0);
  const parts = [];
  if (timed.length > 0) {
    const columns = [
      {name: 'Run', value: (row) => row.run.name, show: (row) => row.run.name},
      {name: 'Shares', value: (row) => row.shares.compute, show: (row) => share_bar(row.shares)},
      ...kParts.map(([name, label]) => ({name: label, numeric: true, value: (row) => row.shares[name], show: (row) => percent(row.shares[name])})),
      waits && {name: 'of it waiting', title: 'the part of the communication that was waiting for other replicas and ranks', numeric: true, value: (row) => row.shares.waiting, show: (row) => percent(row.shares.waiting)},
      {name: 'Images/s', numeric: true, value: (row) => row.speed, show: (row) => number(row.speed)},
      {name: 'GFLOP/s', numeric: true, title: "the model's, forward and backward", value: (row) => row.run.model_flops_per_second, show: (row) => number(row.run.model_flops_per_second / 1e9)},
      {name: 'of the limit', title: 'what trainyard doctor --limits has measured', numeric: true, value: (row) => row.run.model_flops_per_second / row.run.limit_flops_per_second, show: (row) => percent(row.run.model_flops_per_second / row.run.limit_flops_per_second, 0)},
      {name: 'Peak memory', numeric: true, value: (row) => row.run.peak_memory_bytes, show: (row) => bytes(row.run.peak_memory_bytes)},
    ].filter(Boolean);
    parts.push(el('div', {class: 'legend', 'aria-hidden': 'true'}, kParts.map(([, label], place) => {
      const mark = el('span', {class: 'swatch'});
      const paint = () => { mark.style.background = run_color(place, kParts.length); };
      paint();
      repaint.push(paint);
      return el('span', {}, mark, label);
    })), sortable_table(columns, timed, {caption: 'Shares of time', quiet: true, filter: (row) => row.run.name}));
  }
  if (report.runs.length === 1) parts.push(...rank_table(report.runs[0]));
  parts.push(...machine_facts(report));
  return parts.length > 0 ? section('Time and machine', ...parts) : null;
}

function rank_table(run) {
  const ranks = list_of(object_of(run.ranks).seconds).map((seconds, rank) => ({rank, ...object_of(seconds)}));
  if (ranks.length === 0) return [];
  const share = (name) => (row) => row[name] / row.seconds;
  return [el('h3', {}, 'Ranks'), sortable_table([
    {name: 'Rank', numeric: true, value: (row) => row.rank, show: (row) => (row.rank === run.ranks.slowest ? el('strong', {}, `${row.rank} (slowest)`) : String(row.rank))},
    {name: 'Seconds', numeric: true, value: (row) => row.seconds, show: (row) => number(row.seconds)},
    ...['input', 'compute', 'communication', 'waiting', 'update'].map((name) => ({name, numeric: true, value: share(name), show: (row) => percent(share(name)(row))})),
  ], ranks, {caption: 'Shares of time by rank', quiet: true})];
}

function machine_facts(report) {
  const kinds = new Map();
  report.runs.forEach((run, index) => {
    const machine = object_of(run.machine);
    if (Object.keys(machine).length === 0) return;
    const key = JSON.stringify(machine);
    if (!kinds.has(key)) kinds.set(key, {machine, runs: []});
    kinds.get(key).runs.push(index);
  });
  return [...kinds.values()].slice(0, 20).map(({machine, runs}) => fact_table([
    ['Machine', text_of(machine.name)],
    ['Processor', text_of(machine.cpu)],
    ['Cores', count(machine.cores)],
    ['Memory', bytes(machine.memory_bytes)],
    ['GPUs', list_of(machine.gpus).map(text_of).join(', ')],
    ['Kernels', text_of(machine.instruction_set)],
    ['Runs', report.runs.length > 1 ? (runs.length === report.runs.length ? 'all' : runs.slice(0, 20).map((index) => report.runs[index].name).join(', ')) : ''],
  ], 'Machine'));
}

function checkpoints_section(report) {
  const rows = report.runs.flatMap((run) => list_of(run.checkpoints).map((each) => ({run, ...each})));
  if (rows.length === 0) return null;
  const best = (row) => {
    const kept = object_of(row.run.best_checkpoint);
    return row.name === 'best' && is_number(kept.value) ? `best ${text_of(kept.metric)}: ${number(kept.value)}` : row.name === 'best' ? 'best' : '';
  };
  const columns = [
    report.runs.length > 1 && {name: 'Run', value: (row) => row.run.name, show: (row) => row.run.name},
    {name: 'Checkpoint', value: (row) => row.name, show: (row) => row.name},
    {name: 'Step', numeric: true, value: (row) => row.step, show: (row) => count(row.step)},
    {name: 'Size', numeric: true, value: (row) => row.bytes, show: (row) => bytes(row.bytes)},
    {name: 'Saved', value: (row) => text_of(row.saved), show: (row) => date(row.saved)},
    {name: 'State', value: (row) => row.damage || best(row), show: (row) => (row.damage ? el('strong', {class: 'bad'}, `damaged: ${row.damage}`) : best(row) || 'complete')},
  ].filter(Boolean);
  return section('Checkpoints', sortable_table(columns, rows, {caption: 'Checkpoints', quiet: true, filter: (row) => `${row.run.name} ${row.name}`}));
}

function settings_section(report) {
  const flags = report.settings.filter((each) => each.group === 'flag'), several = report.runs.length > 1;
  const shown = (each) => (list_of(each.values).length > 1 ? el('em', {}, 'differs') : value_text(each.values[0]));
  const value = (each) => (list_of(each.values).length > 1 ? 'differs' : value_text(each.values[0]));
  const columns = [{name: 'Setting', value: (each) => each.name, show: (each) => each.name}, {name: 'Value', value, show: shown}];
  const given = flags.filter((each) => list_of(each.given).length > 0);
  const parts = [];
  if (given.length > 0) parts.push(sortable_table(columns, given, {caption: several ? 'Flags that a command line or a file has set, in any run' : 'Flags that the command line or a file has set', tall: false}));
  for (const [group, caption] of [['chosen', 'What the program chose where a flag left it open'], ['version', 'Versions']]) {
    const rows = report.settings.filter((each) => each.group === group);
    if (rows.length > 0) parts.push(folded(caption, () => sortable_table(columns, rows, {caption, tall: false})));
  }
  if (flags.length > 0) parts.push(folded(`All ${flags.length} flags, with their defaults`, () => sortable_table(columns, flags, {caption: 'All flags', filter: (each) => `${each.name} ${value(each)}`})));
  if (!several) parts.push(...data_facts(report.runs[0]));
  return parts.length > 0 ? section('Settings', ...parts) : null;
}

function data_facts(run) {
  const data = object_of(run.data);
  if (Object.keys(data).length === 0) return [];
  return [fact_table([
    ['Data', text_of(data.directory) || 'synthetic images'], ['Files', text_of(data.files)], ['Classes', count(data.num_classes)],
    ['Training images', count(data.train_examples)], ['Validation images', data.validation_examples > 0 ? count(data.validation_examples) : ''],
    ['Seed', is_number(run.seed) ? String(run.seed) : ''], ['Trainyard', text_of(run.version)],
  ], 'Data and seed')];
}

function repeat_section(report) {
  const rows = report.runs.filter((run) => text_of(run.repeat));
  if (rows.length === 0) return null;
  const kShown = 3;
  const one = (run) => el('div', {}, report.runs.length > 1 ? el('h3', {}, run.name) : null, command_box(run.repeat, `Command that repeats ${run.name}`));
  return section('Repeat', el('p', {class: 'hint'}, 'The same flags, data and seed, into a folder of its own:'), rows.slice(0, kShown).map(one),
    rows.length > kShown ? folded(`${rows.length - kShown} more`, () => el('div', {}, rows.slice(kShown).map(one))) : null);
}
