//! The chat template that the model file carries: messages to the text of a prompt.
//!
//! Templates are Jinja programs written for Python, so Python's string methods are there, and block tags take their line
//! with them. A file without a template gives an error and not a guess: a wrong template gives answers that look like
//! those of a bad model.

use std::io;

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, ErrorKind, Value};

use crate::Gguf;
use crate::tokenizer::SpecialTexts;

const KEY: &str = "tokenizer.chat_template";

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Who speaks: `system`, `user` or `assistant`, as far as the template knows more, also others.
    pub role: String,
    /// What is said.
    pub content: String,
}

/// A model's chat template.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    texts: SpecialTexts,
}

/// Why there is no prompt.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// The model file has no template.
    #[error(
        "the model file has no {KEY}: use an instruction-tuned model, or send a plain prompt instead of messages"
    )]
    Missing,
    /// The template is not one that can be run.
    #[error("the model file's {KEY} can't be parsed: use a plain prompt instead of messages")]
    Parse(#[source] minijinja::Error),
    /// The template does not take these messages.
    #[error("the model's chat template refuses these messages: {reason}")]
    Render {
        /// What the template says.
        reason: String,
        /// Where.
        #[source]
        source: minijinja::Error,
    },
    /// Whoever asked said so: what there was so far.
    #[error("the prompt was given up")]
    Stopped(String),
}

impl ChatTemplate {
    /// The template of a model file; `texts` are its tokenizer's.
    ///
    /// # Errors
    /// Where the file has none, or one that can't be parsed.
    pub fn from_gguf(gguf: &Gguf, texts: &SpecialTexts) -> Result<Self, TemplateError> {
        let source = gguf.string(KEY).ok_or(TemplateError::Missing)?;
        Self::new(source, texts)
    }

    /// A template from its source.
    ///
    /// # Errors
    /// Where it can't be parsed.
    pub fn new(source: &str, texts: &SpecialTexts) -> Result<Self, TemplateError> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build()
            .map_err(TemplateError::Parse)?;
        environment.set_syntax(syntax);
        environment
            .set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", refuse);
        environment
            .add_template_owned(KEY, source.to_owned())
            .map_err(TemplateError::Parse)?;
        Ok(Self {
            environment,
            texts: texts.clone(),
        })
    }

    /// The text of a prompt that asks for the assistant's next message.
    ///
    /// # Errors
    /// Where the template refuses the messages, or uses something that is not there (the date, tools).
    pub fn render(&self, messages: &[Message]) -> Result<String, TemplateError> {
        self.render_while(messages, &|_| true)
    }

    /// The same, and whether to go on is asked after each piece of it, with the length so far.
    ///
    /// # Errors
    /// As [`render`](Self::render); [`TemplateError::Stopped`], with what there is, where the answer is no.
    pub fn render_while(
        &self,
        messages: &[Message],
        goes_on: &dyn Fn(usize) -> bool,
    ) -> Result<String, TemplateError> {
        let message = |m: &Message| {
            Value::from_pairs([("role", m.role.as_str()), ("content", m.content.as_str())])
        };
        let context = Value::from_pairs([
            ("messages", messages.iter().map(message).collect()),
            ("add_generation_prompt", Value::from(true)),
            ("bos_token", Value::from(self.texts.bos.as_str())),
            ("eos_token", Value::from(self.texts.eos.as_str())),
        ]);
        let mut text = Vec::new();
        let mut stopped = false;
        let rendered = self.environment.get_template(KEY).and_then(|template| {
            let out = Out {
                text: &mut text,
                stopped: &mut stopped,
                goes_on,
            };
            template.render_captured_to(context, out).map(drop)
        });
        let text = String::from_utf8(text).unwrap_or_default();
        match rendered {
            _ if stopped => Err(TemplateError::Stopped(text)),
            Ok(()) => Ok(text),
            Err(source) => Err(TemplateError::Render {
                reason: source.detail().unwrap_or("it fails").to_owned(),
                source,
            }),
        }
    }
}

/// Where a template writes, until it is told to stop.
struct Out<'a> {
    text: &'a mut Vec<u8>,
    stopped: &'a mut bool,
    goes_on: &'a dyn Fn(usize) -> bool,
}

impl io::Write for Out<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(bytes);
        if !(self.goes_on)(self.text.len()) {
            *self.stopped = true;
            return Err(io::Error::other("the prompt is not wanted, or too long"));
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What templates call when a conversation makes no sense to them.
fn refuse(reason: String) -> Result<Value, minijinja::Error> {
    Err(minijinja::Error::new(ErrorKind::InvalidOperation, reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts() -> SpecialTexts {
        SpecialTexts {
            bos: "<s>".to_owned(),
            eos: "</s>".to_owned(),
        }
    }

    fn message(role: &str, content: &str) -> Message {
        Message {
            role: role.to_owned(),
            content: content.to_owned(),
        }
    }

    #[test]
    fn messages_become_a_prompt() {
        let source = "{{ bos_token }}{% for m in messages %}\n    {% if m.role != 'none' %}\n[{{ m['role'].upper() }}] {{ m.content | trim }}{{ eos_token }}\n    {% endif %}\n{% endfor %}{% if add_generation_prompt %}[ASSISTANT]{% endif %}";
        let template = ChatTemplate::new(source, &texts()).unwrap();
        let prompt = template
            .render(&[
                message("user", " hi "),
                message("none", "x"),
                message("user", "{{ bos_token }}"),
            ])
            .unwrap();
        assert_eq!(
            prompt,
            "<s>[USER] hi</s>\n[USER] {{ bos_token }}</s>\n[ASSISTANT]"
        );
    }

    #[test]
    fn what_a_template_says_when_it_refuses_reaches_the_caller() {
        let source = "{% if messages[0].role != 'user' %}{{ raise_exception('begin with the user') }}{% endif %}";
        let template = ChatTemplate::new(source, &texts()).unwrap();
        let error = template.render(&[message("assistant", "hi")]).unwrap_err();
        assert!(error.to_string().contains("begin with the user"), "{error}");
        assert!(template.render(&[message("user", "hi")]).is_ok());
    }

    #[test]
    fn a_template_stops_when_its_text_is_long_enough() {
        let source = "{% for m in messages %}{{ m.content * 1000 }}{% endfor %}";
        let template = ChatTemplate::new(source, &texts()).unwrap();
        let messages = vec![message("user", "abcd"); 1000];
        let error = template.render_while(&messages, &|bytes| bytes < 10_000);
        let Err(TemplateError::Stopped(text)) = error else {
            panic!("{error:?}");
        };
        assert_eq!(text.len(), 12_000);
        let whole = template.render_while(&messages, &|_| true).unwrap();
        assert_eq!(whole.len(), 4_000_000);
    }

    #[test]
    fn what_is_not_there_is_an_error() {
        let template = ChatTemplate::new("{{ strftime_now('%d') }}", &texts()).unwrap();
        assert!(matches!(
            template.render(&[]),
            Err(TemplateError::Render { .. })
        ));
        assert!(matches!(
            ChatTemplate::new("{% for %}", &texts()),
            Err(TemplateError::Parse(_))
        ));
    }
}
