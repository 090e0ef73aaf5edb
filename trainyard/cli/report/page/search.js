// What a search of settings has tried: the table of its trials, and pictures of what they reached.

function search_section(report) {
  const searches = list_of(report.searches).map(object_of);
  if (searches.length === 0) return null;
  return section('Search', ...searches.flatMap((search) => search_parts(report, search, searches.length > 1)));
}

// The trials with what is compared: the last result, and how many comparisons it has passed. The best first: those that
// ran longest, and among them by value.
function trials_of(search) {
  const trials = list_of(search.trials).map(object_of).map((trial) => {
    const results = list_of(trial.results), last = list_of(results[results.length - 1]);
    return {...trial, results, rung: results.length, epochs: last[0], value: last[1], seconds: results.reduce((sum, each) => sum + each[3], 0)};
  });
  const sign = search.goal === 'lowest' ? 1 : -1;
  const place = (trial) => (trial.state === 'failed' ? 2 : trial.rung === 0 ? 1 : 0);
  return trials.sort((a, b) => place(a) - place(b) || b.rung - a.rung || sign * ((a.value ?? 0) - (b.value ?? 0)) || a.number - b.number);
}

function search_parts(report, search, several) {
  const trials = trials_of(search), best = trials.find((trial) => trial.state !== 'failed' && trial.rung > 0);
  const metric = text_of(search.metric), levels = list_of(search.levels);
  const format = /accuracy|precision/.test(metric) ? (value) => percent(value, 2) : number;
  const parts = several ? [el('h3', {}, search.name), el('p', {class: 'path'}, search.path)] : [];
  for (const problem of list_of(search.problems)) parts.push(el('p', {class: 'bad'}, problem));
  if (trials.length === 0) return [...parts, el('p', {}, 'No trial has begun.')];
  const of_state = (state) => trials.filter((trial) => trial.state === state).length;
  parts.push(el('dl', {class: 'tiles'}, [
    best && tile(`Best ${metric}`, format(best.value), `trial ${best.number}, after ${epochs_text(best.epochs)}`),
    tile('Trials', count(trials.length + (search.left_out || 0)), `${search.goal === 'lowest' ? 'lowest' : 'highest'} ${metric} is best`),
    tile('Run to the end', count(of_state('finished')), levels.length > 1 ? `compared after ${levels.map(number).join(', ')} epochs` : null),
    of_state('failed') > 0 ? tile('Failed', count(of_state('failed'))) : null].filter(Boolean)));
  const marks = new Map();  // a trial -> its marks in the pictures and its row
  const says = el('p', {class: 'says', 'aria-hidden': 'true'}, 'Point at a trial in a picture or in the table.');
  const mark = (trial, node) => {
    if (!marks.has(trial)) marks.set(trial, []);
    marks.get(trial).push(node);
    node.addEventListener('pointerenter', () => show(trial, true));
    node.addEventListener('pointerleave', () => show(trial, false));
    return node;
  };
  function show(trial, on) {
    for (const node of marks.get(trial)) node.classList.toggle('on', on);
    if (on) says.textContent = trial_text(search, trial, format);
  }
  const table = trial_table(report, search, trials, best, format, mark);
  const pictures = search_pictures(search, trials, best, format, mark);
  parts.push(search_legend(), el('div', {class: 'charts'}, pictures), says, table);
  const failed = trials.filter((trial) => trial.state === 'failed'), kShown = 5;
  const item = (trial) => el('li', {class: 'alert error'}, el('strong', {}, `Trial ${trial.number}`), el('div', {}, text_of(trial.reason)));
  if (failed.length > 0) parts.push(el('h3', {}, 'Trials that failed'), el('ul', {class: 'alerts'}, failed.slice(0, kShown).map(item)));
  if (failed.length > kShown) parts.push(folded(`${failed.length - kShown} more`, () => el('ul', {class: 'alerts'}, failed.slice(kShown).map(item))));
  if (search.left_out > 0) parts.push(el('p', {class: 'note'}, `${count(search.left_out)} more trials are in tune.json.`));
  return parts;
}

function epochs_text(epochs) {
  return `${number(epochs)} ${epochs === 1 ? 'epoch' : 'epochs'}`;
}

function trial_text(search, trial, format) {
  const flags = list_of(search.ranges).map((range, at) => `${range.flag} ${list_of(trial.values)[at]}`);
  const reached = trial.rung > 0 ? `${format(trial.value)} after ${epochs_text(trial.epochs)}` : 'no result';
  return `Trial ${trial.number}, ${trial.state}: ${reached}; ${flags.join(', ')}`;
}

function trial_table(report, search, trials, best, format, mark) {
  const levels = list_of(search.levels).length;
  const of_run = (trial) => (is_number(trial.run) && report.runs[trial.run] ? trial.run : null);
  const state = (trial) => (trial.state === 'unfinished' && of_run(trial) !== null && report.runs[of_run(trial)].status === 'running' ? 'running' : trial.state);
  const columns = [
    {name: 'Trial', value: (trial) => trial.number, show: (trial) => (of_run(trial) === null || report.runs.length < 2 ? String(trial.number)
      : el('span', {class: 'run-name'}, run_switch(report, of_run(trial)), el('span', {title: report.runs[of_run(trial)].path}, trial.number)))},
    {name: text_of(search.metric), numeric: true, value: (trial) => trial.value, show: (trial) => (trial === best ? el('strong', {}, format(trial.value)) : format(trial.value))},
    levels > 1 && {name: 'Rung', numeric: true, title: 'comparisons that it has reached, of all', value: (trial) => trial.rung, show: (trial) => `${trial.rung} of ${levels}`},
    {name: 'Epochs', numeric: true, value: (trial) => trial.epochs, show: (trial) => number(trial.epochs)},
    {name: 'State', value: state, show: (trial) => el('span', {class: `pill ${{finished: 'finished', failed: 'failed', running: 'running'}[state(trial)] || ''}`}, state(trial))},
    ...list_of(search.ranges).map(object_of).map((range, at) => {
      const text = (trial) => text_of(list_of(trial.values)[at]);
      const numeric = trials.every((trial) => text(trial) === '' || Number.isFinite(Number(text(trial))));
      return {name: text_of(range.flag), numeric, value: (trial) => (numeric && text(trial) !== '' ? Number(text(trial)) : text(trial)), show: (trial) => text(trial) || '–'};
    }),
    {name: 'Time', numeric: true, value: (trial) => trial.seconds, show: (trial) => (trial.rung > 0 ? duration(trial.seconds) : '–')},
  ].filter(Boolean);
  return sortable_table(columns, trials, {caption: 'Trials of the search, the best first', quiet: true, row: (line, trial) => mark(trial, line),
    filter: (trial) => `${trial.number} ${state(trial)} ${list_of(trial.values).join(' ')} ${text_of(trial.reason)}`});
}

function search_legend() {
  return el('div', {class: 'legend', 'aria-hidden': 'true'}, [['best', 'the best'], ['finished', 'run to the end'], ['stopped', 'stopped or unfinished']].map(([kind, label]) =>
    el('span', {}, svg('svg', {viewBox: '0 0 12 12', class: 'search-mark'}, svg('circle', {cx: 6, cy: 6, r: 4, class: `mark ${kind}`})), label)));
}

function search_pictures(search, trials, best, format, mark) {
  const reached = trials.filter((trial) => trial.rung > 0), metric = text_of(search.metric);
  if (reached.length === 0) return [];
  const values = reached.flatMap((trial) => trial.results.map((each) => each[1]));
  const low = Math.min(...values), high = Math.max(...values);
  const range = {low, high, logarithmic: low > 0 && high > 100 * low};  // a trial that diverged leaves room for the others
  const kind = (trial) => (trial === best ? 'best' : trial.state === 'finished' ? 'finished' : 'stopped');
  const tick = /accuracy|precision/.test(metric) ? (value) => `${number(100 * value)} %` : number;
  const picture = (title, axis, draw) => trial_picture({title, axis, range, tick, draw, say: (trial) => trial_text(search, trial, format), kind, mark});
  const order = [...reached].sort((a, b) => a.number - b.number), better = search.goal === 'lowest' ? Math.min : Math.max;
  const so_far = order.map((_, at) => order.slice(0, at + 1).map((trial) => trial.value).reduce((a, b) => better(a, b)));
  const last = Math.max(...reached.map((trial) => trial.epochs));
  return [
    picture(`${metric} by epoch`, {name: 'epochs', low: 0, high: last}, ({line, point}) => {
      for (const trial of [...reached].reverse()) {
        line(trial, trial.results.map(([epochs, value]) => [epochs, value]));
        for (const [epochs, value] of trial.results) point(trial, epochs, value);
      }
    }),
    picture(`${metric} by trial`, {name: 'trial; the line is the best so far', low: 0, high: Math.max(1, order[order.length - 1].number)}, ({line, point}) => {
      line(null, order.flatMap((trial, at) => (at === 0 ? [[trial.number, so_far[0]]] : [[trial.number, so_far[at - 1]], [trial.number, so_far[at]]])));
      for (const trial of [...reached].reverse()) point(trial, trial.number, trial.value);
    }),
    ...list_of(search.ranges).map(object_of).flatMap((each, at) => {
      const text = (trial) => text_of(list_of(trial.values)[at]), choices = list_of(each.choices).map(text_of);
      const chosen = each.scale === 'choice', place = (trial) => (chosen ? choices.indexOf(text(trial)) : Number(text(trial)));
      const shown = reached.filter((trial) => Number.isFinite(place(trial)) && text(trial) !== '' && (!chosen || place(trial) >= 0));
      if (shown.length === 0) return [];
      const places = shown.map(place), logarithmic = each.scale === 'logarithmic' && Math.min(...places) > 0;
      const axis = chosen ? {name: each.flag, low: -0.5, high: choices.length - 0.5, choices}
        : {name: each.flag, low: Math.min(...places), high: Math.max(...places), logarithmic};
      return [picture(`${metric} by ${each.flag}`, axis, ({point}) => { for (const trial of [...shown].reverse()) point(trial, place(trial), trial.value); })];
    }),
  ];
}

// The places of an axis' numbers, at most about `most`.
function axis_marks({low, high, logarithmic, choices}, most) {
  if (choices) {
    const every = Math.ceil(choices.length / most);
    return choices.map((choice, at) => ({at, text: shorter(choice, 14)})).filter(({at}) => at % every === 0);
  }
  if (!logarithmic) return ticks(low, high, most).map((at) => ({at, text: null}));
  const powers = Math.log10(high / low), every = Math.max(1, Math.ceil(powers / most));
  const found = [];
  for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; power += every) {
    for (const digit of powers < 1.5 ? [1, 2, 5] : [1]) found.push(digit * 10 ** power);
  }
  return found.filter((at) => at >= low * 0.999 && at <= high * 1.001).map((at) => ({at: Number(at.toPrecision(6)), text: null}));
}

// A figure whose points are trials. `draw` gets functions that add a line or a point at values of both axes.
function trial_picture({title, axis, range, tick, draw, say, kind, mark}) {
  const kWidth = 440, kHeight = 240, kLeft = 62, kRight = 14, kTop = 8, kBottom = 42;
  const scaled = ({low, high, logarithmic}, from, to) => {
    const scale = logarithmic ? Math.log10 : (value) => value, flat = scale(high) - scale(low) < 1e-12;
    const margin = flat ? Math.abs(scale(high)) * 0.1 || 0.5 : 0;
    const [first, last] = [scale(low) - margin, scale(high) + margin];
    return (value) => from + (scale(value) - first) / (last - first) * (to - from);
  };
  const x = scaled(axis, kLeft + 8, kWidth - kRight - 8), y = scaled(range, kHeight - kBottom - 8, kTop + 8);
  const nodes = [];
  for (const {at} of axis_marks(range, 5)) {
    nodes.push(svg('line', {x1: kLeft, x2: kWidth - kRight, y1: y(at).toFixed(1), y2: y(at).toFixed(1), class: 'grid'}),
      svg('text', {x: kLeft - 6, y: (y(at) + 4).toFixed(1), 'text-anchor': 'end'}, tick(at)));
  }
  nodes.push(svg('line', {x1: kLeft, x2: kWidth - kRight, y1: kHeight - kBottom, y2: kHeight - kBottom, class: 'axis'}));
  for (const {at, text} of axis_marks(axis, axis.choices ? 6 : 5)) {
    nodes.push(svg('text', {x: x(at).toFixed(1), y: kHeight - kBottom + 16, 'text-anchor': 'middle'}, text ?? number(at)));
  }
  nodes.push(svg('text', {x: (kLeft + kWidth - kRight) / 2, y: kHeight - 8, 'text-anchor': 'middle'}, shorter(text_of(axis.name), 50)));
  const seen = new Map();  // equal points lie beside each other
  draw({
    line: (trial, points) => {
      const node = svg('polyline', {points: points.map(([a, b]) => `${x(a).toFixed(1)},${y(b).toFixed(1)}`).join(' '), class: trial ? `line ${kind(trial)}` : 'line so-far'});
      nodes.push(trial ? mark(trial, node) : node);
    },
    point: (trial, a, b) => {
      const key = `${x(a).toFixed(0)},${y(b).toFixed(0)}`, same = seen.get(key) || 0;
      seen.set(key, same + 1);
      nodes.push(mark(trial, svg('circle', {cx: (x(a) + 3 * same).toFixed(1), cy: y(b).toFixed(1), r: 4, class: `mark ${kind(trial)}`}, svg('title', {}, say(trial)))));
    },
  });
  return el('figure', {class: 'card search-picture'}, el('figcaption', {}, el('h3', {}, title)),
    svg('svg', {viewBox: `0 0 ${kWidth} ${kHeight}`, role: 'img', 'aria-label': `${title}: a point for each trial; the table of trials has the numbers`}, ...nodes));
}
