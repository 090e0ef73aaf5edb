// Line charts on canvas: a picture below, and what follows the pointer on a second canvas above it.
//
// A series: {run, label, points(axis) -> {x, y} (arrays, x ascending), color, dashed}. All charts of a page share `view`:
// the axis, the smoothing, the part of the axis that is shown, and which runs are.

const view = {axis: 'step', smoothing: 0, zoom: null, hidden: new Set(), highlighted: null};
const charts = [];
const kAxisNames = {step: 'step', epoch: 'epoch', time: 'time since the first row'};

function redraw_all() {
  for (const chart of charts) chart.invalidate();
}

// From the first to the last point of all charts, so that they can be read one above the other.
function whole_range() {
  let left = Infinity, right = -Infinity;
  for (const chart of charts) {
    for (const series of chart.shown_series()) {
      const {x} = chart.data_of(series);
      if (x.length === 0) continue;
      left = Math.min(left, x[0]);
      right = Math.max(right, x[x.length - 1]);
    }
  }
  return [left, right];
}

// Evenly spaced round numbers that cover [low, high], about `most` of them.
function ticks(low, high, most) {
  const rough = (high - low) / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough) || power;
  const found = [];
  const first = Math.ceil(low / step - 1e-9), kMost = 100;  // a range so narrow that adding a step changes nothing has no end
  for (let i = 0; i < kMost && (first + i) * step <= high + step * 1e-9; ++i) found.push(Number(((first + i) * step).toPrecision(12)));
  return found;
}

// An exponential moving average whose begin is not drawn towards zero, as TensorBoard's; gaps stay gaps.
function smoothed(y, weight) {
  if (weight === 0) return y;
  let mean = 0, total = 0;
  return y.map((value) => {
    if (!is_number(value)) return null;
    mean = weight * mean + (1 - weight) * value;
    total = weight * total + (1 - weight);
    return mean / total;
  });
}

// The index of the element of ascending `x` that is nearest to `at`.
function nearest_index(x, at) {
  let low = 0, high = x.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (x[middle] < at) low = middle + 1;
    else high = middle;
  }
  return low > 0 && at - x[low - 1] < x[low] - at ? low - 1 : low;
}

function axis_text(value, axis) {
  if (axis === 'time') return duration(value);
  return axis === 'epoch' ? `epoch ${number(value)}` : `step ${count(value)}`;
}

class Chart {
  constructor({title, series, format = number, tick = format, logarithmic = false, note}) {
    Object.assign(this, {title, series, format, tick, note});
    this.log = false;
    this.cursor = null;  // {series, index}
    this.selected = null;  // pixels of a selection by the pointer: [from, to]
    this.stale = true;
    this.visible = false;
    this.base = el('canvas', {'aria-hidden': 'true'});
    this.over = el('canvas', {'aria-hidden': 'true', class: 'over'});
    this.tip = el('div', {class: 'tip', hidden: true, 'aria-hidden': 'true'});
    this.plot = el('div', {class: 'plot', tabindex: '0', role: 'application', 'aria-roledescription': 'line chart',
      'aria-label': `${title}. Left and right arrows move along a line, up and down to the next line, plus and minus zoom, escape shows all.`},
      this.base, this.over, this.tip);
    const tools = el('div', {class: 'tools'});
    if (logarithmic) {
      const toggle = el('button', {type: 'button', 'aria-pressed': 'false', title: 'Logarithmic scale', onclick: () => {
        this.log = !this.log;
        toggle.setAttribute('aria-pressed', String(this.log));
        this.invalidate();
      }}, 'log');
      tools.append(toggle);
    }
    const numbers = folded('Table', () => el('div'));
    numbers.addEventListener('toggle', () => { if (numbers.open) this.fill_table(); });
    this.numbers = numbers;
    this.legend = el('div', {class: 'legend', 'aria-hidden': 'true'});
    this.element = el('figure', {class: 'chart card'}, el('figcaption', {}, el('h3', {}, title), tools), this.legend, this.plot,
      note ? el('p', {class: 'note'}, note) : null, numbers);
    this.listen();
    charts.push(this);
    new IntersectionObserver((entries) => {
      this.visible = entries[entries.length - 1].isIntersecting;
      if (this.visible && this.stale) this.invalidate();
    }, {rootMargin: '200px'}).observe(this.element);
    new ResizeObserver(() => this.invalidate()).observe(this.plot);
  }

  shown_series() {
    return this.series.filter((each) => !view.hidden.has(each.run));
  }

  data_of(series) {
    const key = `${view.axis}/${view.smoothing}`;
    if (series.key !== key) {
      const points = series.points(view.axis);
      series.key = key;
      series.data = {x: points.x, raw: points.y, y: smoothed(points.y, series.dashed ? 0 : view.smoothing)};
    }
    return series.data;
  }

  invalidate() {
    this.stale = true;
    if (!this.visible || this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.draw();
    });
  }

  // Sets the ranges of both axes. Returns false when there is nothing to show.
  measure() {
    let low = Infinity, high = -Infinity;
    let [left, right] = view.zoom || whole_range();
    const shown = this.shown_series();
    for (const series of shown) {
      const {x, y} = this.data_of(series);
      for (let i = 0; i < x.length; ++i) {
        if (x[i] < left || x[i] > right || !is_number(y[i]) || (this.log && y[i] <= 0)) continue;
        if (y[i] < low) low = y[i];
        if (y[i] > high) high = y[i];
      }
    }
    if (!(low <= high)) return false;
    if (left === right) [left, right] = [left - 0.5, right + 0.5];
    const scale = this.log ? Math.log10 : (value) => value;
    [low, high] = [scale(low), scale(high)];
    const is_flat = () => high - low <= 1e-9 * Math.abs(high);  // smoothing rounds
    if (is_flat() && low > 0 && !this.log) low = 0;
    const margin = is_flat() ? Math.abs(high) * 0.1 || 0.5 : (high - low) * 0.06;
    const floor = !this.log && low >= 0 ? 0 : -Infinity;
    Object.assign(this, {left, right, low: Math.max(floor, low - margin), high: high + margin, scale});
    return true;
  }

  to_x(value) { return this.box.left + (value - this.left) / (this.right - this.left) * this.box.width; }
  to_y(value) { return this.box.top + (1 - (this.scale(value) - this.low) / (this.high - this.low)) * this.box.height; }
  from_x(pixel) { return this.left + (pixel - this.box.left) / this.box.width * (this.right - this.left); }

  fit(canvas) {
    const ratio = window.devicePixelRatio || 1, width = this.plot.clientWidth, height = this.plot.clientHeight;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    const context = canvas.getContext('2d');
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    context.font = '12px system-ui, sans-serif';
    return {context, width, height};
  }

  draw() {
    const {context, width, height} = this.fit(this.base);
    if (width === 0) return;
    this.stale = false;
    this.draw_legend();
    if (this.numbers.open) this.fill_table();
    context.fillStyle = css('--muted');
    this.box = null;
    if (!this.measure()) {
      context.textAlign = 'center';
      context.fillText('nothing to show', width / 2, height / 2);
      return this.draw_over();
    }
    const marks = this.value_ticks(height);
    const wide = Math.max(...marks.map((mark) => context.measureText(mark.text).width));
    this.box = {left: Math.ceil(wide) + 10, top: 8, width: width - Math.ceil(wide) - 18, height: height - 34};
    this.draw_axes(context, marks);
    context.save();
    context.beginPath();
    context.rect(this.box.left - 4, this.box.top - 4, this.box.width + 8, this.box.height + 8);
    context.clip();
    const shown = this.shown_series(), faint = view.smoothing > 0 && shown.length <= 20;
    for (const series of shown) {
      if (faint && !series.dashed) this.stroke(context, series, 'raw', 1, 0.25);
    }
    for (const series of shown) this.stroke(context, series, 'y', shown.length > 24 ? 1 : 1.75, shown.length > 24 ? 0.55 : 1);
    context.restore();
    this.draw_over();
  }

  value_ticks(height) {
    const most = Math.max(2, Math.floor(height / 42));
    if (!this.log) return ticks(this.low, this.high, most).map((at) => ({at, text: this.tick(at)}));
    const marks = ticks(this.low, this.high, most).map((at) => ({at: 10 ** at, text: this.tick(10 ** at)}));
    return marks.filter((mark, i) => i === 0 || mark.text !== marks[i - 1].text);
  }

  draw_axes(context, marks) {
    const {box} = this;
    context.strokeStyle = css('--grid');
    context.fillStyle = css('--muted');
    context.lineWidth = 1;
    context.textAlign = 'right';
    context.textBaseline = 'middle';
    for (const {at, text} of marks) {
      const y = Math.round(this.to_y(at)) + 0.5;
      context.beginPath();
      context.moveTo(box.left, y);
      context.lineTo(box.left + box.width, y);
      context.stroke();
      context.fillText(text, box.left - 6, y);
    }
    context.textAlign = 'center';
    context.textBaseline = 'top';
    const shown_time = view.axis === 'time', unit = shown_time && this.right > 7200 ? 3600 : shown_time && this.right > 120 ? 60 : 1;
    const found = ticks(this.left / unit, this.right / unit, Math.max(2, Math.floor(box.width / 90)));
    const name = view.axis, name_width = context.measureText(name).width + 8;
    context.textAlign = 'right';
    context.fillText(name, box.left + box.width, box.top + box.height + 8);
    context.textAlign = 'center';
    for (const at of found) {
      const x = this.to_x(at * unit);
      const text = `${number(at)}${shown_time ? {1: ' s', 60: ' min', 3600: ' h'}[unit] : ''}`;
      const half = context.measureText(text).width / 2;
      if (x - half < box.left - 8 || x + half > box.left + box.width - name_width) continue;
      context.fillText(text, x, box.top + box.height + 8);
    }
    context.strokeStyle = css('--axis');
    context.beginPath();
    context.moveTo(box.left, box.top + box.height + 0.5);
    context.lineTo(box.left + box.width, box.top + box.height + 0.5);
    context.stroke();
  }

  // Draws a line. Of many points in one column of pixels only the first, the least, the greatest and the last are drawn.
  stroke(context, series, which, width, opacity) {
    const data = this.data_of(series), {x} = data, y = data[which];
    let begin = 0, end = x.length;
    if (view.zoom) {
      begin = Math.max(0, nearest_index(x, this.left) - 1);
      end = Math.min(x.length, nearest_index(x, this.right) + 2);
    }
    context.globalAlpha = opacity;
    context.strokeStyle = context.fillStyle = series.color();
    context.lineWidth = width;
    context.lineJoin = 'round';
    context.setLineDash(series.dashed ? [6, 4] : []);
    context.beginPath();
    let down = false, last_x = NaN, low = 0, high = 0, last_y = 0, dots = 0;
    const dense = end - begin > 2 * this.box.width;
    const leave_column = () => {
      if (dense && down && low !== high) {
        context.lineTo(last_x, low);
        context.lineTo(last_x, high);
        context.lineTo(last_x, last_y);
      }
    };
    for (let i = begin; i < end; ++i) {
      if (!is_number(y[i]) || (this.log && y[i] <= 0)) {
        leave_column();
        down = false;
        last_x = NaN;
        continue;
      }
      const px = dense ? Math.round(this.to_x(x[i])) : this.to_x(x[i]), py = this.to_y(y[i]);
      if (dense && px === last_x) {
        low = Math.min(low, py);
        high = Math.max(high, py);
        last_y = py;
        continue;
      }
      leave_column();
      if (down) context.lineTo(px, py);
      else context.moveTo(px, py);
      down = true;
      ++dots;
      last_x = px;
      low = high = last_y = py;
    }
    leave_column();
    context.stroke();
    context.setLineDash([]);
    if (dots <= (series.dashed ? 60 : 1)) this.draw_dots(context, x, y, begin, end);
    context.globalAlpha = 1;
  }

  draw_dots(context, x, y, begin, end) {
    for (let i = begin; i < end; ++i) {
      if (!is_number(y[i]) || (this.log && y[i] <= 0)) continue;
      context.beginPath();
      context.arc(this.to_x(x[i]), this.to_y(y[i]), 2.5, 0, 7);
      context.fill();
    }
  }

  // What follows the pointer: the run that is nearest, its points, and a selection.
  draw_over() {
    const {context} = this.fit(this.over);
    if (!this.box) return;
    const {box} = this, cursor = this.cursor;
    const bold = cursor ? cursor.series.run : view.highlighted;
    if (bold !== null && this.shown_series().length > 1) {
      context.save();
      context.beginPath();
      context.rect(box.left - 4, box.top - 4, box.width + 8, box.height + 8);
      context.clip();
      for (const series of this.shown_series()) {
        if (series.run === bold) this.stroke(context, series, 'y', 3, 1);
      }
      context.restore();
    }
    if (this.selected) {
      const [from, to] = this.selected;
      context.fillStyle = css('--accent');
      context.globalAlpha = 0.15;
      context.fillRect(Math.min(from, to), box.top, Math.abs(to - from), box.height);
      context.globalAlpha = 1;
    }
    if (!cursor) return;
    const {x, y} = this.data_of(cursor.series), at = this.to_x(x[cursor.index]);
    context.strokeStyle = css('--axis');
    context.beginPath();
    context.moveTo(Math.round(at) + 0.5, box.top);
    context.lineTo(Math.round(at) + 0.5, box.top + box.height);
    context.stroke();
    if (!is_number(y[cursor.index])) return;
    context.fillStyle = cursor.series.color();
    context.strokeStyle = css('--card');
    context.lineWidth = 2;
    context.beginPath();
    context.arc(at, this.to_y(y[cursor.index]), 5, 0, 7);
    context.fill();
    context.stroke();
  }

  draw_legend() {
    const labels = new Map(this.shown_series().map((each) => [each.legend || each.label, each]));
    const several = labels.size > 1 || [...labels.values()].some((each) => each.dashed);
    this.legend.replaceChildren(...(several ? [...labels].slice(0, 8) : []).map(([label, series]) => {
      const line = el('span', {class: series.dashed ? 'line dashed' : 'line'});
      line.style.color = series.legend_color ? series.legend_color() : series.color();
      return el('span', {}, line, label);
    }));
  }

  listen() {
    const position = (event) => {
      const frame = this.plot.getBoundingClientRect();
      return [event.clientX - frame.left, event.clientY - frame.top];
    };
    let pressed = null;
    this.plot.addEventListener('pointermove', (event) => {
      if (!this.box) return;
      const [x, y] = position(event);
      if (pressed !== null && Math.abs(x - pressed) > 5) {
        const within = (at) => Math.min(Math.max(at, this.box.left), this.box.left + this.box.width);
        this.selected = [within(pressed), within(x)];
      }
      this.point_at(x, y);
    });
    this.plot.addEventListener('pointerdown', (event) => {
      if (event.button !== 0 || !this.box) return;
      [pressed] = position(event);
      this.plot.setPointerCapture(event.pointerId);
    });
    this.plot.addEventListener('pointerup', () => {
      pressed = null;
      if (!this.selected) return;
      const ends = this.selected.map((pixel) => this.from_x(pixel)).sort((a, b) => a - b);
      this.selected = null;
      if (ends[1] > ends[0]) set_zoom(ends);
    });
    this.plot.addEventListener('pointercancel', () => {
      pressed = this.selected = null;
      this.leave();
    });
    this.plot.addEventListener('pointerleave', () => { if (pressed === null) this.leave(); });
    this.plot.addEventListener('dblclick', () => set_zoom(null));
    this.plot.addEventListener('blur', () => this.leave());
    this.plot.addEventListener('keydown', (event) => this.on_key(event));
  }

  leave() {
    this.cursor = null;
    this.tip.hidden = true;
    this.draw_over();
  }

  point_at(px, py) {
    const at = this.from_x(px);
    const found = [];
    for (const series of this.shown_series()) {
      const {x, y} = this.data_of(series);
      if (x.length === 0) continue;
      const index = nearest_index(x, at);
      if (!is_number(y[index]) || x[index] < this.left || x[index] > this.right) continue;
      const dx = Math.max(0, Math.abs(this.to_x(x[index]) - px) - 12);
      found.push({series, index, far: Math.abs(this.to_y(y[index]) - py) + dx});
    }
    if (found.length === 0) return this.leave();
    found.sort((a, b) => a.far - b.far);
    this.cursor = found[0];
    this.show_tip(found);
    this.draw_over();
  }

  show_tip(found) {
    const {x} = this.data_of(found[0].series), at = x[found[0].index];
    const lines = found.slice(0, 8).map(({series, index}, place) => {
      const {raw, y} = this.data_of(series);
      const mark = el('span', {class: 'swatch'});
      mark.style.background = series.color();
      const value = this.format(raw[index]) + (view.smoothing > 0 && !series.dashed ? ` (${this.format(y[index])})` : '');
      return el('div', {class: place === 0 ? 'nearest' : null}, mark, el('span', {class: 'label'}, series.label), el('span', {class: 'value'}, value));
    });
    const more = found.length > 8 ? [el('div', {class: 'more'}, `and ${found.length - 8} more`)] : [];
    this.tip.replaceChildren(el('div', {class: 'at'}, axis_text(at, view.axis)), ...lines, ...more);
    this.tip.hidden = false;
    const pixel = this.to_x(at), width = this.tip.offsetWidth, space = this.plot.clientWidth;
    this.tip.style.left = `${Math.max(0, pixel + 14 + width > space ? pixel - 14 - width : pixel + 14)}px`;
    this.tip.style.top = '6px';
  }

  on_key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (!this.box) this.draw();  // it was scrolled to just now
    if (!this.box) return;
    const shown = this.shown_series().filter((each) => this.data_of(each).x.length > 0);
    if (shown.length === 0) return;
    let place = this.cursor ? shown.indexOf(this.cursor.series) : -1, index = this.cursor ? this.cursor.index : 0;
    const middle = () => (this.cursor ? this.data_of(this.cursor.series).x[this.cursor.index] : (this.left + this.right) / 2);
    if (event.key === 'Escape' || event.key === '0') {
      set_zoom(null);
    } else if (event.key === '+' || event.key === '=' || event.key === '-') {
      const half = (this.right - this.left) * (event.key === '-' ? 1 : 0.25);
      set_zoom([middle() - half, middle() + half]);
    } else if (['ArrowLeft', 'ArrowRight', 'ArrowUp', 'ArrowDown', 'Home', 'End'].includes(event.key)) {
      if (place < 0) {
        place = 0;
        index = 0;
      } else if (event.key === 'ArrowUp' || event.key === 'ArrowDown') {
        const at = middle();
        place = (place + (event.key === 'ArrowUp' ? shown.length - 1 : 1)) % shown.length;
        index = nearest_index(this.data_of(shown[place]).x, at);
      } else {
        const last = this.data_of(shown[place]).x.length - 1;
        index = {ArrowLeft: Math.max(0, index - 1), ArrowRight: Math.min(last, index + 1), Home: 0, End: last}[event.key];
      }
      const series = shown[place], {x, raw} = this.data_of(series);
      this.cursor = {series, index};
      this.show_tip([this.cursor, ...shown.filter((each) => each !== series).map((each) =>
        ({series: each, index: nearest_index(this.data_of(each).x, x[index])}))]);
      this.draw_over();
      announce(`${series.label}, ${axis_text(x[index], view.axis)}: ${this.format(raw[index])}`);
    } else {
      return;
    }
    event.preventDefault();
  }

  // The same numbers for those who do not see the picture: about twenty rows, a column for each line.
  fill_table() {
    const kRows = 20, kColumns = 12;
    const shown = this.shown_series().slice(0, kColumns);
    const all = [...new Set(shown.flatMap((each) => this.data_of(each).x))].sort((a, b) => a - b)
      .filter((x) => !view.zoom || (x >= view.zoom[0] && x <= view.zoom[1]));
    const rows = all.length <= kRows ? all : Array.from({length: kRows}, (_, i) => all[Math.round(i * (all.length - 1) / (kRows - 1))]);
    const columns = [{name: view.axis, numeric: true, value: (x) => x, show: (x) => (view.axis === 'time' ? duration(x) : number(x))}];
    const reach = rows.length > 1 ? (rows[rows.length - 1] - rows[0]) / kRows / 2 : 0;
    for (const series of shown) {
      const {x, raw} = this.data_of(series);
      const value = (at) => {
        const index = nearest_index(x, at);
        return x.length > 0 && Math.abs(x[index] - at) <= reach ? raw[index] : null;
      };
      columns.push({name: series.label, numeric: true, value, show: (at) => this.format(value(at))});
    }
    const left_out = this.shown_series().length - shown.length;
    const caption = `${this.title} by ${kAxisNames[view.axis]}${left_out > 0 ? `; the first ${kColumns} of ${kColumns + left_out} lines` : ''}`;
    this.numbers.lastElementChild.replaceChildren(sortable_table(columns, rows, {caption}));
  }
}
