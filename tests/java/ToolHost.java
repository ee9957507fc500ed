import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.security.Permission;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

/**
 * Kafka's command line tools, in one process that runs one command after another.
 *
 * Each command and each result is one line of JSON. Input and output are in base64. The argument of
 * this program is the jar with the tools: its classes are loaded anew for each command, because some
 * of them count in static fields.
 */
public final class ToolHost {
    private static final ObjectMapper MAPPER = new ObjectMapper();
    private static final int SECONDS_FOR_HOOKS = 20;

    /** The end of a tool, which would otherwise be the end of this process. */
    private static final class Ended extends RuntimeException {
        final int code;

        Ended(int code) {
            super(null, null, false, false);
            this.code = code;
        }
    }

    /** A guard of this process: the parser of some tools ends it, without asking Kafka's own class. */
    @SuppressWarnings("removal")
    private static final class Guard extends SecurityManager {
        @Override
        public void checkExit(int code) {
            Exit.exit(code);
        }

        @Override
        public void checkPermission(Permission permission) {
        }

        @Override
        public void checkPermission(Permission permission, Object context) {
        }
    }

    /** Classes of the tools, which are not shared with the rest of the process. */
    private static final class ToolLoader extends URLClassLoader {
        ToolLoader(URL jar) {
            super(new URL[] {jar}, ToolHost.class.getClassLoader());
        }

        @Override
        protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
            synchronized (getClassLoadingLock(name)) {
                Class<?> found = findLoadedClass(name);
                if (found == null && name.startsWith("org.apache.kafka.tools.")) {
                    try {
                        found = findClass(name);
                    } catch (ClassNotFoundException error) {
                        found = null;
                    }
                }
                return found == null ? super.loadClass(name, resolve) : found;
            }
        }
    }

    @SuppressWarnings("removal")
    public static void main(String[] arguments) throws IOException {
        System.setSecurityManager(new Guard());
        InputStream in = System.in;
        PrintStream out = System.out;
        URL jar = Path.of(arguments[0]).toUri().toURL();
        BufferedReader lines = new BufferedReader(new InputStreamReader(in, StandardCharsets.UTF_8));
        String line;
        while ((line = lines.readLine()) != null) {
            out.println(run(jar, MAPPER.readTree(line)));
            out.flush();
        }
    }

    private static String run(URL jar, JsonNode command) throws IOException {
        List<String> words = new ArrayList<>();
        command.get("words").forEach(word -> words.add(word.textValue()));
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream err = new ByteArrayOutputStream();
        System.setIn(new ByteArrayInputStream(command.get("input").binaryValue()));
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
        int[] first = {-1};
        List<Runnable> hooks = new ArrayList<>();
        Exit.Procedure end = (code, message) -> {
            if (message != null) {
                System.err.println(message);
            }
            if (first[0] < 0) {
                first[0] = code;
            }
            throw new Ended(code);
        };
        Exit.setExitProcedure(end);
        Exit.setHaltProcedure(end);
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        int code = 0;
        try (ToolLoader loader = new ToolLoader(jar)) {
            Thread.currentThread().setContextClassLoader(loader);
            Class<?> main = loader.loadClass(command.get("main").textValue());
            main.getMethod("main", String[].class).invoke(null, (Object) words.toArray(new String[0]));
        } catch (InvocationTargetException error) {
            if (!(error.getCause() instanceof Ended)) {
                error.getCause().printStackTrace();
                code = 1;
            }
        } catch (ReflectiveOperationException error) {
            error.printStackTrace();
            code = 1;
        } finally {
            Thread.currentThread().setContextClassLoader(ToolHost.class.getClassLoader());
        }
        end(hooks);
        System.out.flush();
        System.err.flush();
        return MAPPER.writeValueAsString(MAPPER.createObjectNode()
            .put("code", first[0] < 0 ? code : first[0])
            .put("out", Base64.getEncoder().encodeToString(out.toByteArray()))
            .put("err", Base64.getEncoder().encodeToString(err.toByteArray())));
    }

    /** Do what the process of the tool would do when it ends: a producer sends what it still holds. */
    private static void end(List<Runnable> hooks) {
        for (Runnable hook : hooks) {
            Thread thread = new Thread(hook);
            thread.setDaemon(true);
            thread.start();
            try {
                thread.join(1000L * SECONDS_FOR_HOOKS);
            } catch (InterruptedException error) {
                throw new IllegalStateException(error);
            }
        }
    }

    private ToolHost() {
    }
}
