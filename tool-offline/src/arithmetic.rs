//! Plans chains of operators such as `2 + 3 * 4` and "10 minus 3".

use crate::facts::{Fact, FactKind, is_listed};
use crate::matching::Mention;
use crate::planner::Planner;
use crate::slots::SlotKind;
use crate::thesaurus::terms;
use crate::tokens::Text;

/// The words of an operator, its operation, and its precedence.
const OPERATORS: [(&[&str], &str, u8); 15] = [
    (&["to", "the", "power", "of"], "power", 3),
    (&["^"], "power", 3),
    (&["multiplied", "by"], "times", 2),
    (&["times"], "times", 2),
    (&["*"], "times", 2),
    (&["×"], "times", 2),
    (&["divided", "by"], "divide", 2),
    (&["over"], "divide", 2),
    (&["/"], "divide", 2),
    (&["÷"], "divide", 2),
    (&["modulo"], "modulo", 2),
    (&["plus"], "plus", 1),
    (&["+"], "plus", 1),
    (&["minus"], "minus", 1),
    (&["-"], "minus", 1),
];

impl Planner<'_> {
    /// Adds a step for every operator between two numbers, in order of precedence.
    pub(crate) fn plan_chains(&mut self) {
        let mut facts = std::mem::take(&mut self.facts).into_iter().peekable();
        while let Some(first) = facts.next() {
            let (mut operands, mut operators) = (vec![first], Vec::new());
            while let Some(before) = operands.last().filter(|fact| matches!(fact.kind, FactKind::Number(_)))
                && let Some((length, operation, level)) = operator(&self.text, before.span.end)
                && let at = before.span.end + length
                && let Some(next) =
                    facts.next_if(|next| next.span.start == at && matches!(next.kind, FactKind::Number(_)))
            {
                operands.push(next);
                operators.push((self.tool_for_operation(operation), level));
            }
            if let (false, [first, .., last]) = (operators.is_empty(), &operands[..]) {
                let range = first.span.start..last.span.end;
                self.chain_ranges.push(range.clone());
                if is_code(&self.text, &range) {
                    // The other operators are gone with the operands.
                    operators.clear();
                    operands = vec![Fact::new(&self.text, range, FactKind::Quoted)];
                } else if operators.iter().any(|(tool, _)| tool.is_none()) {
                    operands = vec![Fact::new(&self.text, range, FactKind::Formula)];
                }
            }
            for level in [3, 2, 1] {
                while let Some(at) =
                    operators.iter().position(|(_, one)| *one == level).filter(|at| *at + 1 < operands.len())
                {
                    let (tool, _) = operators.remove(at);
                    let pair: Vec<_> = operands.drain(at..at + 2).collect();
                    if let ([left, right], Some(tool)) = (&pair[..], tool) {
                        let range = left.span.start..right.span.end;
                        let step = self.push_step(tool, range.clone(), pair);
                        operands.insert(at, Fact::pending_result(step, range));
                    }
                }
            }
            self.facts.extend(operands);
        }
    }

    /// Returns the tool for an operation on two numbers.
    fn tool_for_operation(&self, operation: &str) -> Option<usize> {
        let takes_two = |mention: &Mention| {
            let slots = self.tools.get(mention.tool).map_or(&[][..], |tool| &tool.slots);
            let required = slots.iter().filter(|slot| slot.is_required);
            required.clone().count() == 2
                && required.clone().all(|slot| matches!(slot.kind, SlotKind::Number { .. }))
        };
        let meant = self.tools.plausible(&Text::new(operation), &terms([(0, operation)]));
        meant.into_iter().find(takes_two).map(|mention| mention.tool)
    }
}

/// Returns `true` for a code such as the `123-456` of "booking 123-456": digits that are joined by hyphens, after a word that asks
/// for no calculation.
fn is_code(text: &Text, range: &std::ops::Range<usize>) -> bool {
    let source = text.slice(range.clone());
    let is_joined = source
        .split('-')
        .all(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()));
    let before = match text.word(range.start.wrapping_sub(1)) {
        "#" | ":" => return is_joined,
        "." => text.word(range.start.wrapping_sub(2)),
        word => word,
    };
    let calculates = is_listed(
        "is are was 's be equals equal calculate compute evaluate solve determine find get what of and or than plus minus times \
         by from to with for add subtract multiply divide sum difference between result value does much",
        before,
    );
    is_joined && before.starts_with(char::is_alphabetic) && !calculates
}

/// Returns the operator at a token: its length in tokens, its operation and its precedence.
pub(crate) fn operator(text: &Text, at: usize) -> Option<(usize, &'static str, u8)> {
    let is_here =
        |words: &&[&str]| words.iter().enumerate().all(|(offset, word)| text.word(at + offset) == *word);
    let found = OPERATORS.iter().find(|(words, _, _)| is_here(words));
    found.map(|(words, operation, level)| (words.len(), *operation, *level))
}
