/**
 * @file Puts jobs into the queues of a fleet and waits for their answers.
 *
 *     const asking = new Asking(server, tuner, { announce: say });
 *     const { outcome, worker } = await asking.ask("measure-9c1f", job, signal)
 *
 * A server may lose events, restart, or forget a job, and a worker may die with one. So an answer is looked for again and again, a job that is not
 * there is put again, and an answer counts only when a worker of the fleet signed it for exactly this job.
 */

import { setTimeout } from "node:timers/promises";
import type { Queue, QueueEvents, Job as QueueJob } from "bullmq";
import { remembered } from "../abstraction/collections.ts";
import { EnvironmentError, type EnvironmentProblem } from "../abstraction/error.ts";
import { heard } from "../runtime/until.ts";
import { ANSWER, type Answer, JOB, type Job, jobId, type Outcome, readAnswer } from "./jobs.ts";
import type { Member } from "./members.ts";
import type { FleetServer } from "./server.ts";
import { FleetRefusal, type Signed, sign, verified } from "./signed.ts";

/** An answer, and the name of the worker that signed it. */
export interface Answered {
  readonly outcome: Outcome | Strange;
  readonly worker: string;
}

/** An answer to another question. */
export interface Strange {
  readonly status: "strange";
  readonly because: string;
}

/** Who asks does not want the answer any more. */
export class Withdrawn extends Error {
  constructor() {
    super("a question was withdrawn");
    this.name = "Withdrawn";
  }
}

export interface AskingOptions {
  /** Told of answers that are refused, and of faults of workers. */
  readonly announce: (text: string) => void;
  /** Milliseconds between two looks for answers whose events may have been lost. */
  readonly lookMs?: number;
}

const LOOK_MS = 2000;
/** Most questions that are looked at at once: a server that answers a thousand needs its time for jobs. */
const LOOKS = 50;
/** Faults and refused answers of one job, of any workers, before the search ends. */
const MOST_FAULTS = 5;
/** How long a server may be away. */
const PATIENCE_MS = 120_000;
/** Between two attempts while it is. */
const AGAIN_MS = 500;
/** Answers stay on the server for so many seconds: a search that is started again, or another one at the same time, finds them. */
const KEPT_SECONDS = 600;
const KEPT = { removeOnComplete: { age: KEPT_SECONDS }, removeOnFail: true, stackTraceLimit: 0 } as const;

interface Question {
  readonly queue: string;
  readonly id: string;
  readonly job: Job;
  readonly signed: Signed;
  readonly answered: Promise<Answered>;
  readonly settle: (answered: Answered) => void;
  readonly fail: (error: Error) => void;
  askers: number;
  faults: number;
  isLookedAt: boolean;
  isOver: boolean;
}

export class Asking {
  private readonly server: FleetServer;
  private readonly member: Member;
  private readonly announce: (text: string) => void;
  private readonly open = new Map<string, Question>();
  private readonly queues = new Map<string, Queue>();
  private readonly timer: NodeJS.Timeout;
  private awayFrom: number | undefined;
  private isClosed = false;

  constructor(server: FleetServer, member: Member, { announce, lookMs = LOOK_MS }: AskingOptions) {
    this.server = server;
    this.member = member;
    this.announce = announce;
    this.timer = setInterval(() => this.lookAtSome(), lookMs);
    this.timer.unref();
  }

  /**
   * The answer to a job. Asked twice at once, it is one job.
   * @throws Withdrawn when the signal is aborted before; EnvironmentError when workers fail at it, or the server stays away
   */
  async ask(queue: string, job: Job, signal?: AbortSignal): Promise<Answered> {
    if (this.isClosed || signal?.aborted) throw new Withdrawn();
    const id = jobId(job);
    const question = remembered(this.open, `${queue} ${id}`, () => this.begun(queue, id, job));
    question.askers++;
    let release = (): void => undefined;
    const withdrawn = new Promise<never>((_, reject) => {
      release = heard(signal, () => reject(new Withdrawn()));
    });
    try {
      return await Promise.race([question.answered, withdrawn]);
    } finally {
      release();
      question.askers--;
      if (question.askers === 0) await this.end(question);
    }
  }

  /**
   * Puts a text on the server, as soon as that is there. @returns its hash
   * @throws Withdrawn when the signal is aborted before; EnvironmentError when the server stays away
   */
  async put(text: string, signal?: AbortSignal): Promise<string> {
    const begun = performance.now();
    for (;;) {
      if (this.isClosed || signal?.aborted) throw new Withdrawn();
      try {
        return await this.server.blobs.put(Buffer.from(text));
      } catch (error) {
        if (performance.now() - begun > PATIENCE_MS) throw error;
        await setTimeout(AGAIN_MS);
      }
    }
  }

  /** Withdraws all that is asked. */
  async close(): Promise<void> {
    this.isClosed = true;
    clearInterval(this.timer);
    await Promise.all(
      [...this.open.values()].map((question) => {
        const ended = this.end(question);
        question.fail(new Withdrawn());
        return ended;
      }),
    );
  }

  private begun(queue: string, id: string, job: Job): Question {
    let settle: Question["settle"] = () => undefined;
    let fail: Question["fail"] = () => undefined;
    const answered = new Promise<Answered>((resolve, reject) => {
      settle = (given) => {
        question.isOver = true;
        resolve(given);
      };
      fail = (error) => {
        question.isOver = true;
        reject(error);
      };
    });
    answered.catch(() => undefined);
    const question: Question = {
      queue,
      id,
      job,
      signed: sign(this.member, JOB, job),
      answered,
      settle,
      fail,
      askers: 0,
      faults: 0,
      isLookedAt: false,
      isOver: false,
    };
    setImmediate(() => void this.look(question));
    return question;
  }

  /** A queue whose events are heard. */
  private queueNamed(name: string): Queue {
    return remembered(this.queues, name, () => {
      const queue = this.server.queue(name);
      const events = this.listenTo(name);
      // Made while the server is away, they would never find it.
      queue.waitUntilReady().catch(() => {
        this.queues.delete(name);
        for (const one of [queue, events]) one.close().catch(() => undefined);
      });
      return queue;
    });
  }

  private listenTo(queue: string): QueueEvents {
    const events = this.server.events(queue);
    const look = ({ jobId: id }: { readonly jobId: string }): void => {
      const question = this.open.get(`${queue} ${id}`);
      if (question) void this.look(question);
    };
    events.on("completed", look);
    events.on("removed", look);
    events.on("failed", ({ jobId: id, failedReason }) => {
      const question = this.open.get(`${queue} ${id}`);
      if (question) this.takeFailure(question, failedReason);
    });
    return events;
  }

  /** Looks at those questions that were not looked at for longest. */
  private lookAtSome(): void {
    for (const [key, question] of [...this.open].slice(0, LOOKS)) {
      this.open.delete(key);
      this.open.set(key, question);
      void this.look(question);
    }
  }

  /** Looks how a job stands: puts it where it is not there, and takes its answer where it has ended. */
  private async look(question: Question): Promise<void> {
    if (question.isLookedAt || !this.isOpen(question)) return;
    question.isLookedAt = true;
    try {
      const queue = this.queueNamed(question.queue);
      // The state first: a job that is read before it ends has no answer yet.
      const state = await queue.getJobState(question.id);
      if (state === "completed" || state === "failed") await this.takeEnded(question, await queue.getJob(question.id));
      else if (state === "unknown" && this.isOpen(question))
        await queue.add(question.job.task, question.signed, { jobId: question.id, ...KEPT });
      this.awayFrom = undefined;
    } catch (error) {
      this.missServer(error);
    } finally {
      question.isLookedAt = false;
    }
  }

  private isOpen(question: Question): boolean {
    return !question.isOver && this.open.get(`${question.queue} ${question.id}`) === question;
  }

  private async takeEnded(question: Question, found: QueueJob | undefined): Promise<void> {
    if (found?.failedReason) {
      await found.remove();
      this.takeFailure(question, found.failedReason);
    } else if (found) await this.take(question, found);
  }

  private async take(question: Question, found: QueueJob): Promise<void> {
    try {
      const answered = this.answeredBy(question, found.returnvalue);
      if (answered.outcome.status === "strange") await found.remove();
      question.settle(answered);
    } catch (error) {
      if (!(error instanceof FleetRefusal)) throw error;
      // It stays there as long as nobody removes it.
      await found.remove();
      this.fault(question, error.message);
    }
  }

  private answeredBy({ job }: Question, signed: unknown): Answered {
    const { body, by } = verified(this.member.fleet, signed, { kind: ANSWER, role: "worker" });
    const worker = by.name;
    try {
      const answer: Answer = readAnswer(body, job);
      return { outcome: answer.outcome, worker };
    } catch (error) {
      if (!(error instanceof FleetRefusal)) throw error;
      return { outcome: { status: "strange", because: `worker ${worker}: ${error.message}` }, worker };
    }
  }

  /** A job that failed: its reason is a signed answer, or what the queue says of it. */
  private takeFailure(question: Question, reason: string): void {
    let text = `the queue says: ${String(reason).slice(0, 200)}`;
    try {
      const { outcome, worker } = this.answeredBy(question, JSON.parse(reason));
      if (outcome.status === "refused")
        text = `worker ${worker} refuses a job, as one with another automap does: ${outcome.because}`;
      if (outcome.status === "fault") text = `worker ${worker}: ${outcome.what} (${outcome.remedy})`;
    } catch {
      // Its reason is not one of ours.
    }
    this.fault(question, text);
  }

  private fault(question: Question, text: string): void {
    question.faults++;
    this.announce(text);
    if (question.faults < MOST_FAULTS) setImmediate(() => void this.look(question));
    else
      question.fail(
        new EnvironmentError({
          what: `no worker of the fleet finished a job: ${text}`,
          why: `it was given to workers ${MOST_FAULTS} times`,
          remedy: "look at what the worker says, and run the same command again: what was measured is kept",
        }),
      );
  }

  private missServer(error: unknown): void {
    const now = performance.now();
    this.awayFrom ??= now;
    if (now - this.awayFrom < PATIENCE_MS) return;
    this.giveUp({
      what: `${this.server.address.text} is away: ${error instanceof Error ? error.message : String(error)}`,
      why: "jobs and answers of the fleet go through it",
      remedy: "start it, and run the same command again: what was measured is kept",
    });
  }

  /** Ends all that is asked, since nobody will answer. */
  giveUp(problem: Omit<EnvironmentProblem, "status">): void {
    for (const question of this.open.values()) question.fail(new EnvironmentError(problem));
  }

  /** Forgets a question that nobody asks any more. A job that no worker has begun is taken back. */
  private async end(question: Question): Promise<void> {
    const { queue, id } = question;
    this.open.delete(`${queue} ${id}`);
    if (question.isOver) return;
    question.isOver = true;
    try {
      const found: QueueJob | undefined = await this.queueNamed(queue).getJob(id);
      if (found && (await found.getState()) === "waiting") await found.remove();
    } catch {
      // A worker has begun it, or the server is away: its answer is found by the next search that asks.
    }
  }
}
