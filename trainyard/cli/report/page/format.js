// Numbers, dates and elements. All text of a run enters the page as text nodes: no markup is ever parsed.

const kGrouped = new Intl.NumberFormat('en-US', {maximumFractionDigits: 0});

const is_number = (value) => typeof value === 'number' && Number.isFinite(value);
const text_of = (value) => (typeof value === 'string' ? value : '');
const list_of = (value) => (Array.isArray(value) ? value : []);
const object_of = (value) => (value !== null && typeof value === 'object' && !Array.isArray(value) ? value : {});

function count(value) {
  return is_number(value) ? kGrouped.format(value) : '–';
}

// Four digits: 0.01234, 12.34, 1,234.
function number(value) {
  if (!is_number(value)) return '–';
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e7)) return value.toExponential(2).replace('e+', 'e');
  if (size >= 1000) return kGrouped.format(value);
  return String(Number(value.toPrecision(4)));
}

function percent(value, digits = 1) {
  return is_number(value) ? `${(100 * value).toFixed(digits)} %` : '–';
}

function duration(seconds) {
  if (!is_number(seconds)) return '–';
  if (seconds < 59.95) return `${Number(seconds.toFixed(1))} s`;
  const whole = Math.round(seconds), minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes} min ${whole % 60} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

function bytes(value) {
  if (!is_number(value)) return '–';
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let unit = 0;
  for (; value >= 1000 && unit < units.length - 1; ++unit) value /= 1000;
  return `${value >= 100 || unit === 0 ? value.toFixed(0) : value.toFixed(1)} ${units[unit]}`;
}

// 2026-11-26T02:13:05.535Z -> 2026-11-26 02:13:05 UTC
function date(text) {
  return /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d/.test(text_of(text)) ? `${text.slice(0, 10)} ${text.slice(11, 19)} UTC` : '–';
}

function seconds_between(from, to) {
  const seconds = (Date.parse(text_of(to)) - Date.parse(text_of(from))) / 1000;
  return Number.isFinite(seconds) ? seconds : NaN;
}

// Makes an element. Attributes whose names begin with "on" are listeners; null and undefined children are left out.
function el(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith('on')) node.addEventListener(key.slice(2), value);
    else if (key === 'class') node.className = value;
    else node.setAttribute(key, value === true ? '' : String(value));
  }
  for (const child of children.flat()) {
    if (child !== null && child !== undefined) node.append(child);
  }
  return node;
}

function svg(name, attributes = {}, ...children) {
  const node = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, String(value));
  node.append(...children);
  return node;
}

function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// Says the text to screen readers.
function announce(text) {
  document.getElementById('said').textContent = text;
}

function download(name, type, text) {
  const address = URL.createObjectURL(new Blob([text], {type}));
  const link = el('a', {href: address, download: name});
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

// A command in a box, and a button that copies it.
function command_box(command, label) {
  const button = el('button', {type: 'button', class: 'copy', 'aria-label': `Copy: ${label}`, onclick: copy}, 'Copy');
  async function copy() {
    try {
      await navigator.clipboard.writeText(command);
    } catch {
      const area = el('textarea', {readonly: true, class: 'offscreen'});
      area.value = command;
      document.body.append(area);
      area.select();
      document.execCommand('copy');
      area.remove();
      button.focus();
    }
    button.textContent = 'Copied';
    announce('Copied');
    setTimeout(() => { button.textContent = 'Copy'; }, 2000);
  }
  return el('div', {class: 'command'}, el('code', {tabindex: '0', 'aria-label': label}, command), button);
}
