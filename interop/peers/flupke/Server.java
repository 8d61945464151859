import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.net.DatagramSocket;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.net.SocketException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.security.PrivateKey;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Base64;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import tech.kwik.core.log.SysOutLogger;
import tech.kwik.core.server.ServerConnectionConfig;
import tech.kwik.core.server.ServerConnector;
import tech.kwik.flupke.server.Http3ApplicationProtocolFactory;
import tech.kwik.flupke.server.HttpServerRequest;
import tech.kwik.flupke.server.HttpServerResponse;

/**
 * An HTTP/3 server on flupke. It answers an upload with the body's length and hash, and serves the
 * files of a directory.
 */
public class Server {
    private static final char[] NO_PASSWORD = {};
    /**
     * The size of a write, in bytes. kwik 0.10.8 can forget that a stream has unsent data, until
     * the next write to the stream. (StreamOutputStreamImpl.scheduleSendStreamFrameRequest counts a
     * request after it queues the request, and another thread may serve it first.) A write that
     * waits for room then waits forever. With pieces of 16 KiB, one download of 10 MiB in ten did
     * so. After a small piece, the stream usually has room for the next.
     */
    private static final int PIECE = 512;

    private final Path root;

    private Server(Path root) {
        this.root = root.toAbsolutePath().normalize();
    }

    public static void main(String[] args) {
        // kwik logs to standard output, which is only for the ready line.
        PrintStream out = System.out;
        System.setOut(System.err);
        try {
            SocketAddress address = serve(options(args));
            out.println("ready: listening on " + address.toString().substring(1));
            out.flush();
        } catch (IllegalArgumentException | IOException | GeneralSecurityException e) {
            System.err.println("cannot serve: " + e.getMessage());
            System.exit(1);
        }
    }

    private static Map<String, String> options(String[] args) {
        Map<String, String> options = new HashMap<>();
        for (int i = 0; i < args.length; i++) {
            switch (args[i]) {
                // --cipher has no effect. The server selects the first cipher of the client's list
                // that kwik supports.
                case "--listen", "--cert", "--key", "--root", "--cid-length", "--cipher" -> {
                    if (i + 1 == args.length) {
                        throw new IllegalArgumentException(args[i] + " takes a value");
                    }
                    options.put(args[i], args[++i]);
                }
                case "--key-update" -> throw new IllegalArgumentException("Kwik's server cannot start a key update");
                default -> throw new IllegalArgumentException("there is no option " + args[i]);
            }
        }
        for (String name : List.of("--listen", "--cert", "--key", "--root")) {
            if (!options.containsKey(name)) {
                throw new IllegalArgumentException(name + " is missing");
            }
        }
        return options;
    }

    private static SocketAddress serve(Map<String, String> options) throws IOException, GeneralSecurityException {
        Server server = new Server(Path.of(options.get("--root")));
        DatagramSocket socket = bind(options.get("--listen"));
        ServerConnector.Builder builder = ServerConnector.builder()
                .withKeyStore(keyStore(options.get("--cert"), options.get("--key")), "server", NO_PASSWORD)
                .withSocket(socket)
                .withLogger(new SysOutLogger());
        if (options.containsKey("--cid-length")) {
            builder.withConfiguration(configuration(Integer.parseInt(options.get("--cid-length"))));
        }
        ServerConnector connector = builder.build();
        connector.registerApplicationProtocol(Http3ApplicationProtocolFactory.HTTP3_PROTOCOL_ID, new Http3(server::answer));
        connector.start();
        return socket.getLocalSocketAddress();
    }

    private static DatagramSocket bind(String listen) throws IOException {
        int colon = listen.lastIndexOf(':');
        int port = Integer.parseInt(listen.substring(colon + 1));
        InetSocketAddress address = new InetSocketAddress(listen.substring(0, colon), port);
        try {
            return new DatagramSocket(address);
        } catch (SocketException e) {
            throw new IOException("cannot listen on " + listen + ": " + e.getMessage(), e);
        }
    }

    /** kwik's default configuration, except the length. A configuration replaces all defaults. */
    private static ServerConnectionConfig configuration(int connectionIdLength) {
        return ServerConnectionConfig.builder()
                .maxIdleTimeoutInSeconds(30)
                .maxUnidirectionalStreamBufferSize(1_000_000)
                .maxBidirectionalStreamBufferSize(1_000_000)
                .maxConnectionBufferSize(10_000_000)
                .maxOpenPeerInitiatedUnidirectionalStreams(10)
                .maxOpenPeerInitiatedBidirectionalStreams(100)
                .retryRequired(true)
                .connectionIdLength(connectionIdLength)
                .build();
    }

    private static KeyStore keyStore(String certificateFile, String keyFile) throws IOException, GeneralSecurityException {
        Certificate[] chain;
        try (InputStream pem = new FileInputStream(certificateFile)) {
            chain = CertificateFactory.getInstance("X.509").generateCertificates(pem).toArray(new Certificate[0]);
        }
        String pem = Files.readString(Path.of(keyFile)).replaceAll("-----.*-----", "");
        PKCS8EncodedKeySpec encoded = new PKCS8EncodedKeySpec(Base64.getMimeDecoder().decode(pem));
        PrivateKey key = KeyFactory.getInstance(chain[0].getPublicKey().getAlgorithm()).generatePrivate(encoded);

        KeyStore store = KeyStore.getInstance("PKCS12");
        store.load(null, null);
        store.setKeyEntry("server", key, NO_PASSWORD, chain);
        return store;
    }

    private void answer(HttpServerRequest request, HttpServerResponse response) throws IOException {
        switch (request.method()) {
            case "PUT", "POST" -> receive(request.body(), response);
            case "GET" -> send(request.path(), response);
            default -> response.setStatus(405);
        }
    }

    private static void receive(InputStream body, HttpServerResponse response) throws IOException {
        MessageDigest sha256;
        try {
            sha256 = MessageDigest.getInstance("SHA-256");
        } catch (NoSuchAlgorithmException e) {
            throw new AssertionError(e);
        }
        long bytes = 0;
        byte[] buffer = new byte[65536];
        for (int length = body.read(buffer); length >= 0; length = body.read(buffer)) {
            sha256.update(buffer, 0, length);
            bytes += length;
        }
        String digest = HexFormat.of().formatHex(sha256.digest());
        String receipt = String.format("{\"bytes\": %d, \"sha256\": \"%s\"}", bytes, digest);
        response.setStatus(200);
        response.addHeader("content-type", "application/json");
        response.getOutputStream().write(receipt.getBytes(StandardCharsets.US_ASCII));
    }

    private void send(String path, HttpServerResponse response) throws IOException {
        Path file;
        try {
            file = root.resolve(path.replaceFirst("^/", "")).normalize();
        } catch (InvalidPathException e) {
            file = root;
        }
        if (!root.equals(file.getParent()) || !Files.isRegularFile(file)) {
            response.setStatus(404);
            return;
        }
        response.setStatus(200);
        response.addHeader("content-length", Long.toString(Files.size(file)));
        OutputStream body = response.getOutputStream();
        byte[] piece = new byte[PIECE];
        try (InputStream content = Files.newInputStream(file)) {
            for (int length = content.read(piece); length >= 0; length = content.read(piece)) {
                body.write(piece, 0, length);
            }
        }
    }
}
