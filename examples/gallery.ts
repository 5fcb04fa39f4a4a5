/**
 * @file A gallery: the kernels of a course on GPU programming, each one equation and one schedule, in every language that can express it.
 *
 *     node dist/examples/gallery.js                     all of them, judged: about a minute
 *     node dist/examples/gallery.js conv-1d             one
 *     node dist/examples/gallery.js conv-1d cuda        its text in CUDA
 */

import { equationText, KERNEL_LANGUAGES } from "automap";
import { GALLERY } from "./gallery/kernels.ts";
import { intensityOf, printedIn, rooflineText, verdictText } from "./gallery/show.ts";

const [name, wanted] = process.argv.slice(2);
const chosen = GALLERY.filter((one) => name === undefined || one.name === name);
if (chosen.length === 0) throw new Error(`no kernel "${name}": ${GALLERY.map((one) => one.name).join(", ")}`);

for (const one of chosen) {
  if (wanted === undefined) {
    const extents = one.computation.axes.map((axis) => `${axis.name} ${axis.extent}`).join(", ");
    console.log(`${one.name}: ${one.summary}`);
    console.log(`  ${equationText(one.computation)}   ${extents}`);
    console.log(`  ${intensityOf(one.computation).toFixed(2)} operations a byte`);
  }
  for (const language of KERNEL_LANGUAGES.filter((l) => wanted === undefined || l === wanted)) {
    const printed = printedIn(one, language);
    if ("refused" in printed) console.log(`  no ${printed.refused}`);
    else if (wanted !== undefined) console.log(String(printed.kernel.source));
    else {
      console.log(`  ${language.padEnd(8)}${printed.row.name}: ${await verdictText(printed)}`);
      console.log(`          ${rooflineText(printed)}`);
    }
  }
}
