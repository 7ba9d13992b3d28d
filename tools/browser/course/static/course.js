// What the browser edition adds to JupyterLite: a line above each notebook that says what Python does, with buttons to
// run all cells, to keep a copy and to begin again. An extension written by hand, so that nothing needs to be built.
(() => {
  let shared;
  const load = async name => (await Object.values(shared[name])[0].get())();
  const STYLE = `
    .qkv-bar { display: flex; flex-wrap: wrap; gap: 4px 12px; align-items: center; padding: 4px 12px; min-height: 32px;
      box-sizing: border-box; font-size: 14px; color: var(--jp-ui-font-color1); background: var(--jp-layout-color2);
      border-bottom: 1px solid var(--jp-border-color1); }
    .qkv-bar progress { width: 120px; }
    .qkv-bar [role=status] { flex: 1 1 30em; }
    .qkv-bar button { font: inherit; padding: 2px 10px; color: inherit; background: var(--jp-layout-color0);
      border: 1px solid var(--jp-ui-font-color2); border-radius: 3px; cursor: pointer; }`;
  const SAID = {
    starting: 'Python starts in this browser: some seconds, longer at the first visit. You can read meanwhile.',
    ready: 'Python is ready. Shift + Enter runs a cell and goes on to the next one.',
  };
  const FORGETS = ' This address is plain HTTP: your edits are kept, but not which exercises you have passed.';
  const LATE = 'Python has not started yet. On a slow network, wait; else reload this page.';
  const BUSY = 'Python is busy. In a browser nothing stops it: if a cell never ends, choose Kernel, Restart Kernel.';
  const NEWER = 'This notebook has changed on the site since you edited it. Yours is kept as it is.';
  const SURE = 'Forget what you changed in this notebook, and show it as it was at first?';

  const opened = location.hash; // later it changes, when a panel puts its state there

  function bar(app, panel, Widget) {
    const node = document.createElement('div');
    node.className = 'qkv-bar jp-scrollbar-tiny';
    node.innerHTML = `<progress aria-label="Python starts"></progress><span role="status"></span>
      <button>Run all cells</button><button>Download</button><button hidden>Original again</button>`;
    const [progress, said] = node.children, [all, download, original] = node.querySelectorAll('button');
    let later, notice;
    const put = text => { if (said.textContent !== text) said.textContent = text; };
    const say = state => {
      clearTimeout(later);
      if (state === 'busy') {
        later = setTimeout(put, 15000, BUSY);
        return;
      }
      progress.hidden = state === 'ready';
      if (state === 'starting') later = setTimeout(put, 90000, LATE);
      put(SAID[state] + (window.isSecureContext ? '' : FORGETS) + linked(panel));
    };
    all.onclick = () => app.commands.execute('notebook:run-all-cells');
    download.onclick = () => app.commands.execute('docmanager:download');
    original.onclick = async () => {
      if (!confirm(SURE)) return;
      await app.serviceManager.contents.delete(panel.context.path); // the browser's copy; the site's own stays
      await panel.context.revert();
      compare(true);
    };
    const compare = async opening => {
      const newer = await version(app, panel.context.path, opening);
      original.hidden = !newer; // a file of the learner's own has none
      notice?.dispose();
      notice = newer?.name ? new Widget({node: offer(app, newer)}) : null;
      if (notice) panel.contentHeader.addWidget(notice); // a line of its own: the height of the first is settled
    };
    compare(true);
    setTimeout(compare, 5000, false); // the service worker first answers with what it kept, and looks for newer files then
    follow(panel.sessionContext, say);
    // Now the cells are known that a link may name.
    panel.context.ready.then(() => say(progress.hidden ? 'ready' : 'starting'));
    return node;
  }

  // Of a notebook of the site: nothing more, or where it was edited and another version has come since, that version.
  async function version(app, path, opening) {
    const found = await fetch(`../files/${encodeURI(path)}`, {cache: 'no-cache'});
    if (!found.ok) return null;
    const text = await found.text(), key = `qkv-version ${new URL('..', location.href).pathname}${path}`, name = mark(text);
    const {content} = await app.serviceManager.contents.get(path, {content: true}), original = JSON.parse(text);
    const same = JSON.stringify(content) === JSON.stringify(original);
    if (same && opening) localStorage.setItem(key, name); // what edits from now on begin with
    if (same || localStorage.getItem(key) === name) return {};
    return {name: path.replace(/\.ipynb$/, `-newer-${name}.ipynb`), content: original};
  }

  function mark(text) { // short, and another one for another text; crypto.subtle is not there over plain HTTP
    let sum = 0;
    for (let i = 0; i < text.length; i++) sum = Math.imul(sum, 31) + text.charCodeAt(i) >>> 0;
    return sum.toString(36);
  }

  function offer(app, newer) {
    const node = document.createElement('div');
    node.className = 'qkv-bar jp-scrollbar-tiny';
    node.innerHTML = `<span role="status">${NEWER}</span><button>Open the newer version beside it</button>`;
    node.lastChild.onclick = () => open(app, newer);
    return node;
  }

  async function open(app, {name, content}) { // as it was left, where it was opened before
    const {contents} = app.serviceManager, kept = await contents.get(name, {content: false}).catch(() => null);
    if (!kept) await contents.save(name, {type: 'notebook', format: 'json', content});
    window.open(`?path=${encodeURIComponent(name)}`);
  }

  function follow(session, say) { // what Python does, also after a restart
    const ask = async kernel => {
      say('starting');
      if (!kernel) return;
      await kernel.info;
      say('ready');
    };
    session.kernelChanged.connect((_, change) => ask(change.newValue));
    session.statusChanged.connect((_, status) => {
      if (['restarting', 'autorestarting', 'starting'].includes(status)) say('starting');
      const kernel = session.session?.kernel;
      if (status === 'idle') kernel?.info.then(() => say('ready'));
      if (status === 'busy') kernel?.info.then(() => kernel.status === 'busy' && say('busy'));
    });
    ask(session.session?.kernel);
  }

  function linked(panel) { // of a link with the state of a panel: page.js hands it to the kernel
    const cell = /^#cell=([^&]*)/.exec(opened)?.[1], model = panel.content.model;
    if (cell === undefined || !model) return '';
    const known = [...model.cells].some(each => each.id === cell);
    return known ? ' This link sets a panel below: run all cells to see it.'
      : ` This link is for a cell "${cell}", which this notebook does not have.`;
  }

  window._JUPYTERLAB = window._JUPYTERLAB || {};
  window._JUPYTERLAB['qkv-course'] = {
    init: scope => { shared = scope; },
    get: async () => {
      const {INotebookTracker} = await load('@jupyterlab/notebook'), {Widget} = await load('@lumino/widgets');
      const activate = (app, tracker) => {
        document.head.append(Object.assign(document.createElement('style'), {textContent: STYLE}));
        tracker.widgetAdded.connect((_, panel) => {
          panel.contentHeader.addWidget(new Widget({node: bar(app, panel, Widget)}));
        });
      };
      const plugin = {id: 'qkv-course:bar', autoStart: true, requires: [INotebookTracker], activate};
      return () => ({__esModule: true, default: plugin});
    },
  };
})();
