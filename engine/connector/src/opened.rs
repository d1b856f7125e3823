//! A model file, opened: what an engine computes with, and its words.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use lynx_engine::{
    ChatTemplate, Engine, EngineOptions, Gguf, GgufError, KvPool, Longest, Message, Model,
    OpenError as ModelError, TemplateError, TokenId, Tokenizer, TokenizerError,
};
use lynx_proto::engine::v1::submit::Input;

use crate::host::Refusal;
use crate::pool_file::PoolFile;
use crate::{ConnectorError, Options};

/// Why a model can't be used.
#[derive(Debug, thiserror::Error)]
#[error("can't use the model {}: {reason}", .path.display())]
pub struct OpenError {
    path: PathBuf,
    #[source]
    reason: Reason,
}

#[derive(Debug, thiserror::Error)]
enum Reason {
    #[error(transparent)]
    File(#[from] GgufError),
    #[error(transparent)]
    Model(#[from] ModelError),
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    #[error(transparent)]
    Template(#[from] TemplateError),
}

/// A model and its words.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) model: Arc<Model>,
    pub(crate) tokenizer: Arc<Tokenizer>,
    /// `None` where the file has none: conversations can't be asked for then.
    template: Option<ChatTemplate>,
}

impl Opened {
    pub(crate) fn open(path: &Path) -> Result<Self, OpenError> {
        Self::from_file(path).map_err(|reason| OpenError {
            path: path.to_owned(),
            reason,
        })
    }

    fn from_file(path: &Path) -> Result<Self, Reason> {
        let gguf = Gguf::open(path)?;
        let tokenizer = Tokenizer::from_gguf(&gguf)?;
        let template = match ChatTemplate::from_gguf(&gguf, tokenizer.special_texts()) {
            Err(TemplateError::Missing) => None,
            other => Some(other?),
        };
        Ok(Self {
            model: Arc::new(Model::from_gguf(&gguf)?),
            tokenizer: Arc::new(tokenizer),
            template,
        })
    }

    /// An engine whose KV lies in `file`.
    pub(crate) fn engine(
        &self,
        options: &Options,
        file: &PoolFile,
    ) -> Result<Engine, ConnectorError> {
        let engine = EngineOptions {
            blocks: options.kv_blocks,
            max_sequence: options.max_tokens,
            threads: options.threads,
            chunk_tokens: options.chunk_tokens,
            max_draft: options.max_draft,
        };
        let pool = KvPool::shared(self.model.config(), options.kv_blocks as usize, file.file())?;
        Ok(Engine::with_pool(
            self.model.clone(),
            self.tokenizer.clone(),
            engine,
            pool,
        )?)
    }

    /// The tokens of what was asked: of no more text than there can be room for, and while it is wanted.
    pub(crate) fn prompt(
        &self,
        input: Option<Input>,
        longest: Longest,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<Vec<TokenId>, Refusal> {
        let most = longest.prompt();
        let within = |text: &str| {
            let tokens = self.tokenizer.prompt_within(text, most, is_wanted);
            tokens.map_err(|error| Refusal::prompt(error, longest))
        };
        let text = match input {
            None => return Err(Refusal::NoInput),
            Some(Input::Tokens(tokens)) => return Ok(tokens.ids),
            Some(Input::Text(text)) => text,
            Some(Input::Chat(chat)) => {
                let template = self.template.as_ref().ok_or(TemplateError::Missing)?;
                let messages: Vec<_> = chat
                    .messages
                    .into_iter()
                    .map(|message| Message {
                        role: message.role,
                        content: message.content,
                    })
                    .collect();
                let longest_text = self.tokenizer.longest_text(most);
                let goes_on = |bytes: usize| bytes <= longest_text && is_wanted();
                match template.render_while(&messages, &goes_on) {
                    Err(TemplateError::Stopped(text)) => {
                        within(&text)?;
                        // It is of bytes that are no tokens, and longer than it counts.
                        template.render_while(&messages, &|_| is_wanted())?
                    }
                    rendered => rendered?,
                }
            }
        };
        within(&text)
    }
}
