/**
 * @file Types for the part of genetic-js 0.1.14 that we use, since the package has none. The comments describe the behaviour of its
 * lib/genetic.js.
 */

declare module "genetic-js" {
  export interface Scored<E> {
    readonly fitness: number;
    readonly entity: E;
  }

  export interface Evolution<E> {
    /** `iterations` counts the first population too. `fittestAlwaysSurvives` is on unless turned off. */
    readonly configuration: { size: number; crossover: number; mutation: number; iterations: number };
    /** True when the first is better. */
    optimize: (a: number, b: number) => boolean;
    select1: (scored: readonly Scored<E>[]) => E;
    select2: (scored: readonly Scored<E>[]) => [E, E];
    /** Called `size` times for the first population. Entities are cloned through JSON. */
    seed: () => E;
    mutate: (entity: E) => E;
    crossover: (mother: E, father: E) => [E, E];
    /** Called for every entity in every generation. */
    fitness: (entity: E) => number;
    /** The population of a generation, best first; false ends the evolution. */
    generation: (scored: readonly Scored<E>[], generation: number) => boolean;
    /** Runs to the end, drawing from `Math.random`. */
    start(): void;
  }

  const Genetic: {
    create<E>(): Evolution<E>;
    readonly Optimize: { readonly Minimize: (a: number, b: number) => boolean };
    readonly Select1: { readonly Tournament2: <E>(scored: readonly Scored<E>[]) => E };
    readonly Select2: { readonly Tournament2: <E>(scored: readonly Scored<E>[]) => [E, E] };
  };
  export default Genetic;
}
