/** @file The look of a report. Colours are named once for light and once for dark; paper is always light. */

const LIGHT =
  "--paper:#fff;--ink:#1c2733;--soft:#55677a;--faint:#9aa7b3;--line:#dfe5ea;--shade:#f5f7f9;--link:#1d5fa8;--good:#1c7c3c;--bad:#b3261e;" +
  "--series-1:#0072b2;--series-2:#d55e00;--series-3:#007a5a;--series-4:#b0508e;--series-5:#8a6d00;--series-6:#3d3d9e;";
const DARK =
  "--paper:#12181f;--ink:#e3eaf1;--soft:#a3b3c2;--faint:#66788a;--line:#2b3742;--shade:#1a222b;--link:#7db8f5;--good:#6fd08c;--bad:#ff8a80;" +
  "--series-1:#56b4e9;--series-2:#ff9a4d;--series-3:#3fd0a4;--series-4:#e79cc9;--series-5:#f0d452;--series-6:#a7a7ff;";

export const PAGE_STYLE = `
:root{color-scheme:light dark;${LIGHT}}
@media screen and (prefers-color-scheme:dark){:root{${DARK}}}
body{margin:0 auto;max-width:60rem;padding:1.5rem;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,sans-serif}
h1{font-size:1.6rem;margin:0}h2{font-size:1.25rem;margin:2.5rem 0 .5rem;border-bottom:1px solid var(--line)}
h3{font-size:1.05rem;margin:2rem 0 .25rem}h3 small{font-weight:400;color:var(--soft)}h4{margin:1rem 0 .25rem;font-size:1rem}
a{color:var(--link)}code{font-family:ui-monospace,Menlo,Consolas,monospace;font-size:.9em;overflow-wrap:anywhere}
nav ul{display:flex;flex-wrap:wrap;gap:1rem;padding:0;margin:.5rem 0;list-style:none}
table{border-collapse:collapse;font-size:.875rem;margin:.75rem 0}caption{text-align:left;color:var(--soft);padding-bottom:.35rem}
th,td{padding:.25rem .75rem .25rem 0;text-align:left;vertical-align:top;border-bottom:1px solid var(--line);font-weight:400}
thead th{color:var(--soft)}tbody th{font-weight:600}.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.whole{white-space:nowrap}.facts th{color:var(--soft);font-weight:400;white-space:nowrap}.wide{overflow-x:auto}
figure{margin:1rem 0}figure>svg{max-width:100%;height:auto}figcaption{color:var(--soft);font-size:.875rem;max-width:45rem}
.verdict{padding:.5rem .75rem;background:var(--shade);border-left:4px solid var(--soft)}.verdict.quiet{border-color:var(--good)}.verdict.noisy{border-color:var(--bad)}
details{margin:.5rem 0}summary{cursor:pointer;color:var(--link)}
@media print{body{max-width:none;padding:0;font-size:11pt}nav,details:not([open]){display:none}a{color:inherit;text-decoration:none}
h2,h3,h4,h3+p,caption{break-after:avoid}figure,tr{break-inside:avoid}table{font-size:8.5pt}th,td{padding-right:.4rem}}
`;
