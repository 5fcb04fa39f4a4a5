/**
 * @file The script of a page that follows a database: it hears of changes as server-sent events, and puts them in their places.
 *
 *     ["put", "r3f9a-figures", "<dl>...</dl>"]      replaces what is in an element, by markup that our own code made
 *     ["grow", "r3f9a-trials-mark", "M52 30..."]    draws more in a group of paths
 */

/** A change of a page. */
export type Patch = readonly [what: "put" | "grow", id: string, text: string];

/** A path is drawn as a whole when it grows, so one of this many characters is left as it is and another begun. */
const LONGEST_PATH = 8000;
/** A browser paints all that shares a layer when some of it changes. Paths that are left as they are move to a layer of their own, so many at once. */
const MOST_FRESH = 8;

export const LIVE_SCRIPT = `
"use strict";
{
  const told = document.getElementById("told");
  const tell = (text) => {
    told.textContent = text;
    told.hidden = text === "";
  };
  const grow = (group, d) => {
    const [settled, ...fresh] = group.children;
    const last = fresh.at(-1);
    const drawn = last?.getAttribute("d") ?? "";
    if (last && drawn.length < ${LONGEST_PATH}) {
      last.setAttribute("d", drawn + d);
      return;
    }
    if (fresh.length >= ${MOST_FRESH}) settled.append(...fresh);
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    path.setAttribute("class", group.dataset.look);
    path.setAttribute("d", d);
    group.append(path);
  };
  const source = new EventSource(document.body.dataset.events);
  source.addEventListener("open", () => tell(""));
  source.addEventListener("message", ({ data }) => {
    for (const [what, id, text] of JSON.parse(data)) {
      const place = document.getElementById(id);
      if (place && what === "grow") grow(place, text);
      else if (place) place.innerHTML = text;
    }
  });
  source.addEventListener("reload", () => {
    source.close();
    location.reload();
  });
  source.addEventListener("end", () => {
    source.close();
    tell("automap watch has ended: this page stays as it is.");
  });
  source.addEventListener("error", () => {
    if (source.readyState === EventSource.CLOSED) tell("automap watch no longer answers: this page stays as it is.");
    else tell("automap watch does not answer; this page keeps asking.");
  });
}
`;
