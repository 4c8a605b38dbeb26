//! Other names for the settings of a question.

use crate::agent::{Ask, TypedAsk};
use crate::tool::AnswerType;

impl Ask {
    #[doc(hidden)]
    #[deprecated = "the type of the answer is named by `answer_as`: write `agent.ask(\"…\").answer_as::<T>().await?`"]
    pub fn output_type<T: AnswerType>(self) -> TypedAsk<T> {
        self.answer_as()
    }

    #[doc(hidden)]
    #[deprecated = "limits are in one place: write `.limits(|l| l.max_turns(3))`"]
    pub fn max_turns(self, turns: u32) -> Self {
        self.limits(|limits| limits.max_turns(turns))
    }

    #[doc(hidden)]
    #[deprecated = "limits are in one place: write `.limits(|l| l.max_turns(3))`"]
    pub fn multi_turn(self, turns: u32) -> Self {
        self.limits(|limits| limits.max_turns(turns))
    }
}
