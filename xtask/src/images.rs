//! Container images of Lynx's own programs, made without a container engine and without a registry.
//!
//! The same archives go into the tests' cluster and to whoever pushes them. The same programs give the same digests, on
//! any day and in any folder. Refuses to be a general image builder: no base image, no shell, no package manager; an image
//! is a program, the C library that it was linked with, and a user to run it.

mod archive;
mod bill;
mod blob;
mod layer;
mod program;
#[cfg(test)]
mod tests;
mod verbs;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Parser;

use self::archive::Image;
use self::layer::{Layer, Packing, Tree};
use self::program::{Profile, Program};
use self::verbs::Verbs;

/// Makes container images of Lynx as OCI archives.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask images")]
pub(crate) struct Options {
    /// Which ones: all but the model if none is named
    images: Vec<Name>,
    /// The folder for the archives, NAME.tar each
    #[arg(long, default_value = "out/images")]
    out: PathBuf,
    /// How the programs are compiled
    #[arg(long, value_enum, default_value = "release")]
    profile: Profile,
    /// With RDMA: the agent loads libibverbs, which goes into its image with this machine's drivers
    #[arg(long)]
    rdma: bool,
    /// What the images' names start with
    #[arg(long, default_value = "lynx.dev")]
    repository: String,
    /// The images' tag
    #[arg(long, default_value = env!("CARGO_PKG_VERSION"))]
    tag: String,
    /// The weights for the image `model`, a GGUF file
    #[arg(long, required_if_eq("images", "model"))]
    model: Option<PathBuf>,
    /// The time of every file, in seconds since 1970
    #[arg(long, env = "SOURCE_DATE_EPOCH", default_value_t = 0)]
    epoch: u64,
}

/// An image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Name {
    /// The operator
    Operator,
    /// The agent, the sidecar of every engine
    Agent,
    /// The embedded engine, and all else that the `lynx` command does
    Engine,
    /// What holds a pod's namespaces in the tests' cluster
    Pause,
    /// A model's weights, to be mounted as an image volume
    Model,
}

/// The feature that has an agent know of cards.
const RDMA: &str = "lynx-agent/rdma";

const PROGRAMS: [Name; 4] = [Name::Operator, Name::Agent, Name::Engine, Name::Pause];

impl Name {
    fn text(self) -> &'static str {
        match self {
            Name::Operator => "operator",
            Name::Agent => "agent",
            Name::Engine => "engine",
            Name::Pause => "pause",
            Name::Model => "model",
        }
    }

    /// What a container of it runs.
    fn program(self) -> Option<&'static str> {
        match self {
            Name::Operator => Some("lynx-operator"),
            Name::Agent => Some("lynx-agent"),
            Name::Engine => Some("lynx"),
            Name::Pause => Some("lynx-pause"),
            Name::Model => None,
        }
    }

    fn title(self, rdma: bool) -> &'static str {
        match self {
            Name::Operator => "Lynx operator",
            Name::Agent if rdma => "Lynx agent, with RDMA",
            Name::Agent => "Lynx agent",
            Name::Engine => "Lynx embedded engine",
            Name::Pause => "Pause",
            Name::Model => "Model weights",
        }
    }
}

/// Makes the images that the arguments ask for, and says what each is.
///
/// # Errors
/// A program does not build, or a file can't be read or written.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let options = Options::parse_from([&["images".to_owned()], arguments].concat());
    let out = root.join(&options.out);
    fs::create_dir_all(&out).with_context(|| format!("creating {}", out.display()))?;
    let names = if options.images.is_empty() {
        &PROGRAMS[..]
    } else {
        &options.images
    };

    let features = if options.rdma { &[RDMA][..] } else { &[] };
    let metadata = bill::metadata(root, features)?;
    let stripped = tempfile::tempdir()?;
    let wanted: Vec<_> = names.iter().filter_map(|name| name.program()).collect();
    let mut programs = if wanted.is_empty() {
        Vec::new()
    } else {
        program::build(root, options.profile, &wanted, features, stripped.path())?
    }
    .into_iter();
    for name in names {
        let path = out.join(format!("{}.tar", name.text()));
        let Some(file) = name.program() else {
            let model = options.model.as_deref();
            let model = model.context("the image `model` needs --model FILE")?;
            let layers = vec![weights(model, options.epoch)?];
            save(
                options.image(*name, Vec::new(), layers),
                &path,
                options.epoch,
            )?;
            continue;
        };
        let program = programs.next().context("each program was built")?;
        let mut layers = program_layers(&program, file, options.epoch)?;
        let mut libraries = program.libraries.clone();
        if options.rdma && *name == Name::Agent {
            let verbs = Verbs::here(&program.libraries)?;
            layers.insert(1, verbs.tree().pack(Packing::Gzip, options.epoch)?);
            libraries.extend(verbs.libraries().cloned());
        }
        let image = options.image(*name, vec![format!("/usr/bin/{file}")], layers);
        let digest = save(image, &path, options.epoch)?;
        let bill = bill::bill(&metadata, file, &libraries, &digest)?;
        fs::write(path.with_extension("cdx.json"), format!("{bill:#}\n"))?;
    }
    Ok(())
}

impl Options {
    fn image(&self, name: Name, entrypoint: Vec<String>, layers: Vec<Layer>) -> Image {
        let labels = [
            ("title", name.title(self.rdma)),
            ("version", &self.tag),
            (
                "licenses",
                if name == Name::Model {
                    ""
                } else {
                    env!("CARGO_PKG_LICENSE")
                },
            ),
        ];
        let labels = labels.into_iter().filter(|(_, value)| !value.is_empty());
        Image {
            repository: format!("{}/{}", self.repository, name.text()),
            tag: self.tag.clone(),
            entrypoint,
            labels: labels
                .map(|(key, value)| (format!("org.opencontainers.image.{key}"), value.into()))
                .collect(),
            layers,
        }
    }
}

/// The system below, which most programs share, and the program itself.
fn program_layers(program: &Program, name: &str, epoch: u64) -> Result<Vec<Layer>> {
    let mut own = Tree::default();
    own.copy(&format!("usr/bin/{name}"), 0o755, &program.file);
    Ok(vec![
        system(&program.libraries).pack(Packing::Gzip, epoch)?,
        own.pack(Packing::Gzip, epoch)?,
    ])
}

/// A user, the order in which names are looked up, a place for temporary files, and the C library.
fn system(libraries: &BTreeSet<PathBuf>) -> Tree {
    let mut tree = Tree::default();
    tree.text(
        "etc/passwd",
        "root:x:0:0:root:/:/sbin/nologin\nlynx:x:65532:65532:lynx:/:/sbin/nologin\n",
    );
    tree.text("etc/group", "root:x:0:\nlynx:x:65532:\n");
    tree.text("etc/nsswitch.conf", "hosts: files dns\n");
    tree.text("usr/share/doc/lynx/LICENSE", include_str!("../../LICENSE"));
    tree.folder("tmp", 0o1777);
    for library in libraries {
        let path = library.to_string_lossy();
        tree.copy(path.trim_start_matches('/'), 0o755, library);
    }
    tree
}

fn weights(model: &Path, epoch: u64) -> Result<Layer> {
    let name = model
        .file_name()
        .context("--model names no file")?
        .to_string_lossy();
    let mut tree = Tree::default();
    tree.copy(&name, 0o644, model);
    tree.pack(Packing::Plain, epoch)
}

/// Writes an archive, and gives the image's digest.
fn save(image: Image, path: &Path, epoch: u64) -> Result<String> {
    let name = image.name();
    // Written beside its place and moved there: an archive is whole or absent.
    let partial = path.with_extension("tar.partial");
    let file = File::create(&partial).with_context(|| format!("creating {}", partial.display()))?;
    let written = image.write(BufWriter::new(file), epoch)?;
    fs::rename(&partial, path)?;
    let mebibytes = tenths_of_mebibytes(written.size);
    writeln!(
        io::stdout(),
        "  image     {name}  {}  {mebibytes} MiB  {}",
        path.display(),
        written.digest
    )?;
    Ok(written.digest)
}

/// As `3.1`.
fn tenths_of_mebibytes(bytes: u64) -> String {
    let tenths = (bytes * 10).div_ceil(1 << 20);
    format!("{}.{}", tenths / 10, tenths % 10)
}
