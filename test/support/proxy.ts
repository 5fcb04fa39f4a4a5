/**
 * @file A network between members of a fleet and its server that can be cut, slow, lossy, or forget connections.
 *
 *     const network = await networkTo(server.port);
 *     network.is("slow");          ... member speaks to network.port ...          network.is("well");
 */

import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";
import { setTimeout } from "node:timers/promises";
import { type Random, randomInteger } from "../../abstraction/random.ts";
import { portOf } from "./servers.ts";

/**
 * `cut`: connections are ended and none is made. `slow`: what is sent arrives later. `lossy`: connections end at any piece of what is sent.
 * `silent`: pieces get lost and nobody is told, as when a router forgets connections; those made later work.
 */
export const NETWORK_STATES = ["well", "cut", "slow", "lossy", "silent"] as const;
export type NetworkState = (typeof NETWORK_STATES)[number];

export interface Network {
  readonly port: number;
  readonly is: (state: NetworkState) => void;
  readonly close: () => Promise<void>;
}

/** One piece in so many ends a lossy connection. */
const LOST_ONE_OF = 20;
const SLOW_MS = [20, 200] as const;
/** As of PostgreSQL's listeners in BullMQ. */
const KEEPALIVE_MS = 20_000;

/** A network to a port of this machine, in which chance decides what is lost and for how long pieces are under way. */
export async function networkTo(port: number, random: Random): Promise<Network> {
  let state: NetworkState = "well";
  const open = new Set<Connection>();
  const server = createServer((near) => {
    if (state === "cut") near.destroy();
    else
      open.add(
        new Connection(
          near,
          connect(port, "127.0.0.1"),
          () => state,
          random,
          (ended) => open.delete(ended),
        ),
      );
  });
  const end = (): void => {
    for (const connection of open) connection.end();
  };
  return {
    port: await portOf(server),
    is: (next) => {
      state = next;
      if (next === "cut") end();
      if (next === "silent") for (const connection of open) connection.forget();
    },
    close: async () => {
      const closed = once(server, "close");
      server.close();
      end();
      await closed;
    },
  };
}

class Connection {
  isForgotten = false;
  private readonly sockets: readonly Socket[];
  private readonly onEnd: (connection: Connection) => void;

  constructor(
    near: Socket,
    far: Socket,
    state: () => NetworkState,
    random: Random,
    onEnd: (connection: Connection) => void,
  ) {
    this.sockets = [near, far];
    this.onEnd = onEnd;
    for (const [from, to] of [
      [near, far],
      [far, near],
    ] as const) {
      // In order, each after the one before.
      let last: Promise<unknown> = Promise.resolve();
      const inTurn = (work: () => void): void => {
        const delay = state() === "slow" ? randomInteger(random, ...SLOW_MS) : 0;
        last = last.then(() => (delay > 0 ? setTimeout(delay) : undefined)).then(work);
      };
      from.on("data", (piece) => {
        if (this.isForgotten) return;
        if (state() === "lossy" && random() < 1 / LOST_ONE_OF) this.end();
        else inTurn(() => to.write(piece));
      });
      from.on("close", () => inTurn(() => (this.isForgotten && from === far) || this.end()));
      from.on("error", () => undefined);
    }
  }

  /** Nothing arrives any more. The keepalive of TCP, which libuv asks for each second, notices after some time where nothing was sent. */
  forget(): void {
    this.isForgotten = true;
    void setTimeout(KEEPALIVE_MS, undefined, { ref: false }).then(() => this.end());
  }

  end(): void {
    this.onEnd(this);
    for (const socket of this.sockets) socket.destroy();
  }
}
