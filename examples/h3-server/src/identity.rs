//! The server's certificate and key: from files, or generated for a test.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// The options of the command line.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// The server's certificate, followed by its intermediates (PEM)
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// The certificate's private key (PEM)
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Generate a certificate for this name or address; repeatable
    #[arg(long, value_name = "NAME_OR_IP", conflicts_with_all = ["cert", "key"])]
    self_signed: Vec<String>,
    /// Write the generated root certificate to FILE, for the client's --cafile
    #[arg(long, value_name = "FILE", requires = "self_signed")]
    write_ca: Option<PathBuf>,
}

/// A certificate chain, the server's own first, and its key.
#[derive(Debug)]
pub struct Identity {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
}

/// A generated root certificate and its file, if any.
#[derive(Debug)]
pub struct RootFile(Option<(PathBuf, String)>);

impl RootFile {
    /// Writes it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(self) -> anyhow::Result<()> {
        let Some((file, root)) = self.0 else { return Ok(()) };
        std::fs::write(&file, root)
            .with_context(|| format!("cannot write the root certificate to {}", file.display()))
    }
}

/// Loads or generates the identity of `program`, as the command line demands.
///
/// # Errors
/// The command line names no identity, or the program cannot use a file.
pub fn load(program: &str, options: &Options) -> anyhow::Result<(Identity, RootFile)> {
    match (&options.cert, &options.key, options.self_signed.as_slice()) {
        (Some(cert), Some(key), _) => Ok((from_files(cert, key)?, RootFile(None))),
        (_, _, []) => bail!(
            "HTTP/3 needs a certificate: use --cert FILE --key FILE, or for a test --self-signed \
             localhost --write-ca ca.pem"
        ),
        (_, _, names) => {
            let (identity, root) = generate(program, names)?;
            Ok((identity, RootFile(options.write_ca.clone().map(|file| (file, root)))))
        }
    }
}

fn from_files(cert: &Path, key: &Path) -> anyhow::Result<Identity> {
    let unusable = |file: &Path| format!("{} is not a PEM file of that kind", file.display());
    let read = |file: &Path| {
        std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))
    };
    let chain = CertificateDer::pem_slice_iter(&read(cert)?)
        .collect::<Result<Vec<_>, _>>()
        .with_context(|| unusable(cert))?;
    ensure!(!chain.is_empty(), "{} holds no certificate", cert.display());
    let key_der = PrivateKeyDer::from_pem_slice(&read(key)?).with_context(|| unusable(key))?;
    Ok(Identity { chain, key: key_der })
}

/// Generates a root and a certificate under it. Returns the root as PEM. It drops the root's key,
/// so that key can sign nothing else.
fn generate(program: &str, names: &[String]) -> anyhow::Result<(Identity, String)> {
    let mut root = CertificateParams::default();
    root.distinguished_name.push(DnType::CommonName, format!("{program} test root"));
    root.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    root.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let root =
        CertifiedIssuer::self_signed(root, KeyPair::generate().context("cannot make a key")?)
            .context("cannot make a root certificate")?;

    let mut own = CertificateParams::new(names)
        .with_context(|| format!("cannot make a certificate for {}", names.join(", ")))?;
    own.distinguished_name.push(DnType::CommonName, program);
    own.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    own.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    own.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate().context("cannot make a key")?;
    let own = own
        .signed_by(&key, &root)
        .with_context(|| format!("cannot make a certificate for {}", names.join(", ")))?;
    let identity = Identity {
        chain: vec![own.der().clone()],
        key: PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
    };
    Ok((identity, root.pem()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rustls_accepts_generated_certificates() {
        let (identity, root) =
            generate("test", &["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        let provider = rustls::crypto::ring::default_provider();
        let signer = provider.key_provider.load_private_key(identity.key).unwrap();
        let certified = rustls::sign::CertifiedKey::new(identity.chain, signer);
        certified.keys_match().unwrap();
        assert!(CertificateDer::from_pem_slice(root.as_bytes()).is_ok());
    }

    #[test]
    fn the_error_has_the_name_that_no_certificate_can_have() {
        let error = generate("test", &["bücher".to_owned()]).err().unwrap();
        assert!(error.to_string().contains("bücher"));
    }
}
