// What a model gets wrong: confusion matrix, classes, calibration, the most confident errors.

function evaluation_section(report) {
  const evaluated = report.runs.map((run, index) => ({run, index, evaluation: object_of(run.evaluation)})).filter((each) => Object.keys(each.evaluation).length > 0);
  const title = 'Errors';
  if (evaluated.length === 0) {
    const run = report.runs[0];
    return section(title, el('p', {}, 'No evaluation lies in the run’s folder. This command writes one, with confusion matrix, classes, calibration and the most wrong images; then write the report again:'),
      command_box(run.evaluate, 'Command that evaluates the run'));
  }
  const place = el('div');
  const best = evaluated.reduce((a, b) => ((b.evaluation.top_1 || 0) > (a.evaluation.top_1 || 0) ? b : a));
  const show = (each) => place.replaceChildren(...evaluation_parts(each.evaluation));
  const parts = [];
  if (evaluated.length > 1) {
    const chooser = el('select', {onchange: (event) => show(evaluated[Number(event.target.value)])}, evaluated.map((each, at) =>
      el('option', {value: at, selected: each === best}, each.run.name)));
    parts.push(sortable_table([
      {name: 'Run', value: (each) => each.run.name, show: (each) => each.run.name},
      {name: 'Top-1', numeric: true, value: (each) => each.evaluation.top_1, show: (each) => percent(each.evaluation.top_1, 2)},
      {name: 'Top-5', numeric: true, value: (each) => each.evaluation.top_5, show: (each) => percent(each.evaluation.top_5, 2)},
      {name: 'Calibration error', numeric: true, value: (each) => each.evaluation.ece, show: (each) => percent(each.evaluation.ece, 2)},
      {name: 'Images', numeric: true, value: (each) => each.evaluation.images, show: (each) => count(each.evaluation.images)},
    ], evaluated, {caption: 'Evaluations', filter: (each) => each.run.name}), el('label', {class: 'chooser'}, 'Show the errors of ', chooser));
  }
  show(best);
  return section(title, ...parts, place);
}

function evaluation_parts(evaluation) {
  const parts = [el('dl', {class: 'tiles'}, [['Top-1 accuracy', percent(evaluation.top_1, 2)], ['Top-5 accuracy', percent(evaluation.top_5, 2)],
    ['Calibration error', percent(evaluation.ece, 2)], ['Images', count(evaluation.images), is_number(evaluation.step) ? `at step ${count(evaluation.step)}` : null]].filter(([, value]) => value !== '–').map((each) => tile(...each)))];
  const pair = el('div', {class: 'pair'});
  if (list_of(evaluation.cells).length > 0) pair.append(el('div', {}, el('h3', {}, 'Confusion matrix'), confusion_matrix(evaluation)), el('div', {}, el('h3', {}, 'Largest confusions'), largest_confusions(evaluation)));
  if (pair.childElementCount > 0) parts.push(pair);
  if (list_of(evaluation.wrong).length > 0) parts.push(el('h3', {}, 'Most confidently wrong'), wrong_images(evaluation));
  const lower = el('div', {class: 'pair'});
  if (list_of(evaluation.recall).length > 0) lower.append(el('div', {}, el('h3', {}, 'Classes'), class_table(evaluation)));
  if (list_of(evaluation.bins).length > 0) lower.append(el('div', {}, el('h3', {}, 'Calibration'), calibration(evaluation)));
  if (lower.childElementCount > 0) parts.push(lower);
  return parts;
}

function class_name(evaluation, index) {
  return text_of(list_of(evaluation.names)[index]) || `class ${index}`;
}

// {cells: [{truth, predicted, images}], totals: images of each true class}
function matrix_of(evaluation) {
  const flat = list_of(evaluation.cells), cells = [];
  const totals = list_of(evaluation.names).map((_, index) => list_of(evaluation.count)[index] || 0);
  const sums = totals.map(() => 0);
  for (let i = 0; i + 2 < flat.length; i += 3) {
    cells.push({truth: flat[i], predicted: flat[i + 1], images: flat[i + 2]});
    sums[flat[i]] += flat[i + 2];
  }
  return {cells, totals: totals.map((total, index) => total || sums[index]), size: totals.length};
}

function cell_text(evaluation, matrix, truth, predicted, images) {
  const total = matrix.totals[truth];
  return `${class_name(evaluation, truth)} → ${class_name(evaluation, predicted)}: ${count(images)} of ${count(total)} (${percent(images / total)})`;
}

// A row for each true class, a column for each prediction. Blue: right. Orange: wrong. The darker, the larger a share of the row.
function confusion_matrix(evaluation) {
  const matrix = matrix_of(evaluation), {size} = matrix, at = new Map(matrix.cells.map((cell) => [cell.truth * size + cell.predicted, cell.images]));
  const canvas = el('canvas', {'aria-hidden': 'true'});
  const says = el('p', {class: 'says'}, 'Point at a cell, or move with the arrow keys.');
  const plot = el('div', {class: 'matrix', tabindex: '0', role: 'application', 'aria-roledescription': 'confusion matrix',
    'aria-label': `Confusion matrix of ${size} classes. Arrow keys move; rows are true classes, columns predictions.`}, canvas);
  const named = size <= 40;
  let cursor = null, box = null;

  function draw() {
    const width = plot.clientWidth, ratio = window.devicePixelRatio || 1;
    if (width === 0) return;
    const context = canvas.getContext('2d');
    context.font = '12px system-ui, sans-serif';
    const names = list_of(evaluation.names).map((_, index) => shorter(class_name(evaluation, index), 18));
    const margin = named ? Math.min(width * 0.3, Math.max(...names.map((name) => context.measureText(name).width)) + 10) : 22;
    const side = Math.min(width - margin, 620);
    box = {left: margin, top: margin, side, cell: side / size};
    canvas.style.height = `${side + margin}px`;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round((side + margin) * ratio);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.font = '12px system-ui, sans-serif';
    context.textBaseline = 'middle';
    context.fillStyle = css('--cell');
    context.fillRect(margin, margin, side, side);
    const right = css('--right'), wrong = css('--wrong');
    for (const {truth, predicted, images} of matrix.cells) {
      const share = images / matrix.totals[truth];
      context.globalAlpha = Math.min(1, truth === predicted ? 0.08 + 0.92 * share : 0.05 + 0.95 * share ** 0.7);
      context.fillStyle = truth === predicted ? right : wrong;
      const gap = box.cell > 6 ? 1 : 0;
      context.fillRect(margin + predicted * box.cell, margin + truth * box.cell, Math.max(0.75, box.cell - gap), Math.max(0.75, box.cell - gap));
      if (box.cell >= 26) {
        context.fillStyle = context.globalAlpha > 0.55 ? css('--on-cell') : css('--ink');
        context.globalAlpha = 1;
        context.textAlign = 'center';
        context.fillText(count(images), margin + (predicted + 0.5) * box.cell, margin + (truth + 0.5) * box.cell);
      }
    }
    context.globalAlpha = 1;
    context.fillStyle = css('--muted');
    if (named) {
      names.forEach((name, index) => {
        const middle = margin + (index + 0.5) * box.cell;
        if (box.cell < 10 && index % 2 === 1) return;
        context.textAlign = 'right';
        context.fillText(name, margin - 6, middle, margin - 8);
        context.save();
        context.translate(middle, margin - 6);
        context.rotate(-Math.PI / 2);
        context.textAlign = 'left';
        context.fillText(name, 0, 0, margin - 8);
        context.restore();
      });
    } else {
      context.textAlign = 'center';
      context.fillText('predicted class', margin + side / 2, margin / 2);
      context.save();
      context.translate(margin / 2, margin + side / 2);
      context.rotate(-Math.PI / 2);
      context.fillText('true class', 0, 0);
      context.restore();
    }
    if (cursor) {
      context.strokeStyle = css('--ink');
      context.lineWidth = 2;
      context.strokeRect(margin + cursor[1] * box.cell, margin + cursor[0] * box.cell, Math.max(3, box.cell), Math.max(3, box.cell));
    }
  }

  function move_to(truth, predicted, spoken) {
    cursor = [truth, predicted];
    const text = cell_text(evaluation, matrix, truth, predicted, at.get(truth * size + predicted) || 0);
    says.textContent = text;
    if (spoken) announce(text);
    draw();
  }

  plot.addEventListener('pointermove', (event) => {
    if (!box) return;
    const frame = plot.getBoundingClientRect();
    const column = Math.floor((event.clientX - frame.left - box.left) / box.cell), line = Math.floor((event.clientY - frame.top - box.top) / box.cell);
    if (column >= 0 && line >= 0 && column < size && line < size) move_to(line, column, false);
  });
  plot.addEventListener('keydown', (event) => {
    const step = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0]}[event.key];
    if (!step) return;
    event.preventDefault();
    const within = (value) => Math.min(size - 1, Math.max(0, value));
    const [truth, predicted] = cursor || [0, 0];
    move_to(cursor ? within(truth + step[0]) : 0, cursor ? within(predicted + step[1]) : 0, true);
  });
  new ResizeObserver(draw).observe(plot);
  repaint.push(draw);
  const parts = [plot, says];
  if (evaluation.cells_left_out > 0) parts.push(el('p', {class: 'note'}, `${count(evaluation.cells_left_out)} cells with the fewest images are left out.`));
  if (size <= 30) parts.push(folded('Table', () => matrix_table(evaluation, matrix, at)));
  return el('div', {}, parts);
}

function shorter(text, most) {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

function matrix_table(evaluation, matrix, at) {
  const rows = Array.from({length: matrix.size}, (_, index) => index);
  return sortable_table([
    {name: 'True class', value: (truth) => truth, show: (truth) => class_name(evaluation, truth)},
    ...rows.map((predicted) => ({name: class_name(evaluation, predicted), numeric: true, value: (truth) => at.get(truth * matrix.size + predicted) || 0,
      show: (truth) => count(at.get(truth * matrix.size + predicted) || 0)})),
  ], rows, {caption: 'Images of each true class (rows) by predicted class (columns)'});
}

function largest_confusions(evaluation) {
  const matrix = matrix_of(evaluation), kShown = 20;
  const wrong = matrix.cells.filter((cell) => cell.truth !== cell.predicted).slice(0, kShown);
  if (wrong.length === 0) return el('p', {}, 'Every image was classified right.');
  return sortable_table([
    {name: 'True class', value: (cell) => class_name(evaluation, cell.truth), show: (cell) => class_name(evaluation, cell.truth)},
    {name: 'taken for', value: (cell) => class_name(evaluation, cell.predicted), show: (cell) => class_name(evaluation, cell.predicted)},
    {name: 'Images', numeric: true, value: (cell) => cell.images, show: (cell) => count(cell.images)},
    {name: 'of the class', numeric: true, value: (cell) => cell.images / matrix.totals[cell.truth], show: (cell) => percent(cell.images / matrix.totals[cell.truth])},
  ], wrong, {caption: `The ${wrong.length} largest confusions`, quiet: true});
}

function class_table(evaluation) {
  const rows = list_of(evaluation.names).map((_, index) => {
    const precision = evaluation.precision[index], recall = evaluation.recall[index];
    const f1 = is_number(precision) && is_number(recall) ? (precision + recall > 0 ? 2 * precision * recall / (precision + recall) : 0) : null;
    return {name: class_name(evaluation, index), images: list_of(evaluation.count)[index], precision, recall, f1};
  });
  const share = (name, label, title) => ({name: label, numeric: true, title, value: (row) => row[name], show: (row) => percent(row[name])});
  return sortable_table([
    {name: 'Class', value: (row) => row.name, show: (row) => row.name},
    {name: 'Images', numeric: true, value: (row) => row.images, show: (row) => count(row.images)},
    share('precision', 'Precision', 'of the images that were given this class, the share that has it'),
    share('recall', 'Recall', 'of the images that have this class, the share that was given it'),
    share('f1', 'F1', 'the harmonic mean of both'),
  ], rows, {caption: 'Classes', quiet: true, filter: (row) => row.name, sorted: 4});
}

// How often the model was right, by how sure it was. On the diagonal it is as sure as it is right.
function calibration(evaluation) {
  const bins = list_of(evaluation.bins).filter((bin) => list_of(bin).length === 3 && bin[2] > 0 && is_number(bin[0]) && is_number(bin[1]));
  const kSide = 240, kLeft = 40, kTop = 10;
  const x = (value) => kLeft + value * kSide, y = (value) => kTop + (1 - value) * kSide;
  const most = Math.max(...bins.map((bin) => bin[2]));
  const picture = svg('svg', {viewBox: `0 0 ${kSide + kLeft + 24} ${kSide + kTop + 40}`, class: 'calibration', role: 'img', 'aria-label': 'Accuracy by confidence; the table beside it has the numbers'},
    ...[0, 0.25, 0.5, 0.75, 1].flatMap((at) => [
      svg('line', {x1: x(0), x2: x(1), y1: y(at), y2: y(at), class: 'grid'}),
      svg('text', {x: x(0) - 6, y: y(at) + 4, 'text-anchor': 'end'}, `${100 * at} %`),
      svg('text', {x: x(at), y: y(0) + 18, 'text-anchor': 'middle'}, at === 0.25 || at === 0.75 ? '' : `${100 * at} %`)]),
    svg('line', {x1: x(0), y1: y(0), x2: x(1), y2: y(1), class: 'ideal'}),
    svg('polyline', {points: bins.map((bin) => `${x(bin[0]).toFixed(1)},${y(bin[1]).toFixed(1)}`).join(' '), class: 'real'}),
    ...bins.map((bin) => svg('circle', {cx: x(bin[0]).toFixed(1), cy: y(bin[1]).toFixed(1), r: (2 + 5 * Math.sqrt(bin[2] / most)).toFixed(1), class: 'dot'})),
    svg('text', {x: x(0.5), y: y(0) + 36, 'text-anchor': 'middle'}, 'confidence'));
  const under = bins.reduce((sum, bin) => sum + (bin[1] - bin[0]) * bin[2], 0);
  return el('div', {}, picture, el('p', {class: 'note'}, `Calibration error ${percent(evaluation.ece, 2)}: the model is ${under < 0 ? 'more' : 'less'} sure than it is right. Larger dots hold more images.`),
    folded('Table', () => sortable_table([
      {name: 'Confidence', numeric: true, value: (bin) => bin[0], show: (bin) => percent(bin[0])},
      {name: 'Accuracy', numeric: true, value: (bin) => bin[1], show: (bin) => percent(bin[1])},
      {name: 'Images', numeric: true, value: (bin) => bin[2], show: (bin) => count(bin[2])},
    ], bins, {caption: 'Accuracy by confidence'})));
}

function wrong_images(evaluation) {
  const left_out = evaluation.wrong_left_out > 0 ? el('p', {class: 'note'}, `${evaluation.wrong_left_out} more are in evaluation.json.`) : null;
  return el('div', {}, el('ul', {class: 'wrong'}, list_of(evaluation.wrong).map((each) => el('li', {},
    /^data:image\/(png|jpeg);base64,/.test(text_of(each.image)) ? el('img', {src: each.image, alt: `${each.true}, taken for ${each.predicted}`, loading: 'lazy'}) : el('div', {class: 'no-image'}, 'no picture'),
    el('div', {class: 'caption'}, el('span', {class: 'predicted'}, `${each.predicted} ${percent(each.confidence, 0)}`), el('span', {class: 'truth'}, `is ${each.true}`),
      el('span', {class: 'file', title: each.file}, text_of(each.file).slice(text_of(each.file).lastIndexOf('/') + 1)))))), left_out);
}
