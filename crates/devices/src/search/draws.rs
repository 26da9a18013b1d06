//! Which parts of its devices a term takes, once the devices are chosen.

use super::moves::Move;
use super::{Search, SearchResult};
use crate::problem::Undecided;

impl Search<'_> {
    /// Draws everything the term requests from the devices it has picked, then continues.
    pub(super) fn draw_all(&mut self, chosen: &Move<'_>) -> SearchResult {
        if chosen.ask.adds_up() {
            self.state.missing[chosen.term] =
                chosen.ask.amounts.iter().map(|want| want.amount).collect();
        }
        if chosen.ask.source.admin { self.settle(chosen) } else { self.draw_from(chosen, 0, 0) }
    }

    /// Draws from the pick `pick`, the request `want` and all that come after.
    fn draw_from(&mut self, chosen: &Move<'_>, mut pick: usize, mut want: usize) -> SearchResult {
        let (term, ask) = (chosen.term, chosen.ask);
        while pick < self.state.picks[term].len() {
            let Some(wanted) = ask.amounts.get(want) else {
                (pick, want) = (pick + 1, 0);
                continue;
            };
            let missing = (!ask.each).then(|| self.state.missing[term][want]);
            if missing.is_some_and(|missing| missing <= 0) {
                want += 1;
                continue;
            }
            self.step()?;
            let row = self.state.picks[term][pick].row;
            let Some(ways) = self.state.splits(ask, row, wanted, missing) else {
                return Err(Undecided::TooLarge);
            };
            match ways.as_slice() {
                [] if ask.each => return Ok(false),
                [] => {}
                [only] => self.state.draw(term, ask, pick, want, only),
                several => {
                    for way in several {
                        let mark = self.state.mark();
                        self.state.draw(term, ask, pick, want, way);
                        if self.draw_from(chosen, pick, want + 1)? {
                            return Ok(true);
                        }
                        self.state.undo_to(mark);
                    }
                    return Ok(false);
                }
            }
            want += 1;
        }
        self.settle(chosen)
    }

    /// Completes a term that has everything: keeps its score, if that is the required one, and
    /// continues.
    fn settle(&mut self, chosen: &Move<'_>) -> SearchResult {
        let (term, ask) = (chosen.term, chosen.ask);
        let lacks = |missing: &[i128]| missing.iter().any(|missing| *missing > 0);
        if ask.adds_up() && !ask.source.admin && lacks(&self.state.missing[term]) {
            return Ok(false);
        }
        let score = self.state.score(term, self.decided[term].alternative, ask);
        let decided = &mut self.decided[term];
        if let Some(level) = decided.level
            && score != level
        {
            if score < level {
                decided.next_level = decided.next_level.max(Some(score));
            }
            return Ok(false);
        }
        decided.score = score;
        self.term(term + 1)
    }
}
