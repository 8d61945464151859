//! The certificates and files that all tries share.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use sidekick_netem::source::SourceFile;
use sidekick_netem::topology::{RECEIVER, RECEIVER_V6};

use crate::case::Case;

/// The servers' name in their certificate.
pub(crate) const NAME: &str = "interop.example";

/// The paths of the certificates and files.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) chain: PathBuf,
    pub(crate) key: PathBuf,
    pub(crate) root_certificate: PathBuf,
    /// The directory of the servers' files.
    pub(crate) root: PathBuf,
    sources: BTreeMap<u64, SourceFile>,
}

impl Files {
    pub(crate) fn make(directory: &Path, seed: u64) -> anyhow::Result<Self> {
        let [chain, key, root_certificate, root] =
            ["chain.pem", "key.pem", "root.pem", "root"].map(|name| directory.join(name));
        std::fs::create_dir(&root).context("cannot make a directory for the servers' files")?;
        let mut sources = BTreeMap::new();
        for bytes in Case::ALL.map(Case::bytes) {
            let source = SourceFile::generate(&root.join(bytes.to_string()), bytes, seed)
                .context("cannot make a file to send")?;
            sources.insert(bytes, source);
        }
        let files = Self { chain, key, root_certificate, root, sources };
        files.certify().context("cannot make the servers' certificates")?;
        Ok(files)
    }

    /// Adds the options of a server for its certificate and its files.
    pub(crate) fn add_server_options(&self, command: &mut Command) {
        for (option, path) in
            [("--cert", &self.chain), ("--key", &self.key), ("--root", &self.root)]
        {
            command.arg(option).arg(path);
        }
    }

    /// The file of a case.
    pub(crate) fn source(&self, case: Case) -> anyhow::Result<&SourceFile> {
        self.sources
            .get(&case.bytes())
            .with_context(|| format!("there is no file for {}", case.name()))
    }

    fn certify(&self) -> anyhow::Result<()> {
        let mut root = CertificateParams::new(Vec::new())?;
        root.distinguished_name.push(DnType::CommonName, "interop root");
        root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        root.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let root = CertifiedIssuer::self_signed(root, KeyPair::generate()?)?;
        let mut own = CertificateParams::new([
            NAME.to_owned(),
            RECEIVER.to_string(),
            RECEIVER_V6.to_string(),
        ])?;
        own.distinguished_name.push(DnType::CommonName, NAME);
        own.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        let own = own.signed_by(&key, &root)?;
        std::fs::write(&self.chain, own.pem() + &root.pem())?;
        std::fs::write(&self.key, key.serialize_pem())?;
        std::fs::write(&self.root_certificate, root.pem())?;
        Ok(())
    }
}
