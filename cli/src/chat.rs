//! The model's words: its tokenizer, and how it is asked.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use lynx_engine::{ChatTemplate, Config, Gguf, Message, TokenId, Tokenizer};

use crate::prompts::{Prompt, Source};

/// A model's tokenizer and chat template.
#[derive(Debug)]
pub struct Chat {
    model: String,
    context: usize,
    tokenizer: Tokenizer,
    /// `None` where the model's file has none: it gets the text as it is.
    template: Option<ChatTemplate>,
}

impl Chat {
    /// The words of the model at `path`.
    ///
    /// # Errors
    /// Where the file is no model, or its vocabulary can't be read.
    pub fn open(path: &Path) -> Result<Self> {
        let gguf = Gguf::open(path).with_context(|| format!("opening {}", path.display()))?;
        let tokenizer = Tokenizer::from_gguf(&gguf)?;
        let template = ChatTemplate::from_gguf(&gguf, tokenizer.special_texts()).ok();
        let context = Config::from_gguf(&gguf)?.context;
        let model = gguf.string("general.name").unwrap_or_default().to_owned();
        Ok(Self {
            model,
            context,
            tokenizer,
            template,
        })
    }

    /// The model's name, as its file gives it.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// How many tokens a prompt may have beside an answer of this length.
    pub fn room(&self, answer: u32) -> usize {
        self.context.saturating_sub(answer as usize)
    }

    /// Whether a prompt and an answer of these lengths fit.
    ///
    /// # Errors
    /// Where they are longer than what the model was trained for.
    pub fn check_length(&self, prompt: usize, answer: u32) -> Result<()> {
        let (context, room) = (self.context, self.room(answer));
        ensure!(
            prompt <= room,
            "the prompt has {prompt} tokens and the answer up to {answer}, and the model reads at most {context}: \
             shorten the prompt to {room} tokens"
        );
        Ok(())
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// What the model gets where a user says `text`.
    ///
    /// # Errors
    /// Where the model's template can't be filled in.
    pub fn tokens(&self, text: &str) -> Result<Vec<TokenId>> {
        let Some(template) = &self.template else {
            return Ok(self.tokenizer.prompt(text)?);
        };
        let said = Message {
            role: "user".to_owned(),
            content: text.to_owned(),
        };
        Ok(self.tokenizer.prompt(&template.render(&[said])?)?)
    }

    /// A prompt of as many tokens as fit into `target`, and its tokens.
    ///
    /// # Errors
    /// Where not even the question fits.
    pub fn prompt(&self, source: &Source, target: usize) -> Result<(Prompt, Vec<TokenId>)> {
        let count = |text: &str| self.tokens(text).map_or(usize::MAX, |tokens| tokens.len());
        let prompt = source.prompt(target, &count)?;
        let tokens = self.tokens(&prompt.text())?;
        Ok((prompt, tokens))
    }
}
