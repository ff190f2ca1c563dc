// The answers of the panels "why?" and "weights" that a page holds, see hookviz/export/walk.py.

const NEEDS = "This needs the notebook: ";

/**
 * Find the answer to a question among those of a page.
 * @param size Height and width of the map in which a place is chosen.
 */
export function answered(
  question: any,
  { answers, weights, none }: { answers: any[]; weights: any[]; none: string },
  arrays: Record<string, any>,
  size: number[],
) {
  if (question.ask === "weights") {
    const found = weights.find(({ layer, channel }) =>
      layer === question.layer && channel === question.channel
    );
    return found
      ? { ...found, arrays: { tiles: arrays.tiles } }
      : { none: `${NEEDS}the page holds the kernels of a first layer alone.` };
  }
  const fits = (answer: any) =>
    question.output === undefined
      ? ["layer", "channel"].every((name) => answer[name] === question[name]) &&
        same(answer.position, positionOf(question, size))
      : answer.output === question.output;
  const number = answers.findIndex(fits);
  if (number < 0) {
    return {
      none: NEEDS +
        (none ||
          "the page holds the path of the largest terms from the prediction to the input. Begin there."),
    };
  }
  const own = ["kernel", "patch"].map((name) => [name, arrays[`${number} ${name}`]]);
  return { ...answers[number], arrays: Object.fromEntries(own.filter(([, array]) => array)) };
}

/** The position that is asked about: chosen in the map as fractions, or given. */
function positionOf({ position, place }: any, size: number[]): number[] {
  if (!place) return position;
  const fractions = place.slice(-size.length);
  return size.map((all, axis) => Math.min(Math.floor(fractions[axis] * all), all - 1));
}

function same(one: number[], other: number[]) {
  return one.length === other.length && one.every((each, axis) => each === other[axis]);
}
