/* MOAC on a finite model in plain C: the yardstick for the compiled training loop.

   Discounted setting, table critic w [S, M], softmax policy over a table theta [S, A], momentum 1/t, three objectives.
   Per iteration: tabulate the policy, N TD batches of D transitions, B actor transitions, min-norm weights, one step.
   One chain per trial, trials one after the other, one thread, float32. The sizes S, A, O come from the compiler's
   command line, so that every loop has a known length. */

#include <math.h>
#include <stdint.h>
#include <string.h>

#if !defined(S) || !defined(A) || !defined(O)
#error "compile with -DS=... -DA=... -DO=..."
#endif
#define M 3
#define P (S * A)
#define L (A * O) /* what can happen in a state: an action and its outcome, index a * O + o */

typedef struct {
    const int32_t *next_state;  /* [S, L] */
    const float *probability;   /* [S, L], of the outcome given the action */
    const float *reward;        /* [S, L, M] */
    const uint8_t *terminated;  /* [S, L] */
    const int32_t *start_state; /* [num_starts], the states an episode can start in */
    const float *start;         /* [num_starts], their cumulative distribution */
    int32_t num_starts;
} Model;

typedef struct {
    int32_t iterations, critic_steps, critic_batch, actor_batch; /* T, N, D, B; D, B <= MAX_BATCH */
    float discount, alpha, beta;
} Settings;

enum { MAX_BATCH = 4096 };

typedef struct {
    uint32_t x[4];
} Random; /* xoshiro128+, Blackman and Vigna */

typedef struct {
    float theta[P], policy[P], cumulative[S * L]; /* cumulative: over the L events of each state */
    float w[S * M], G[M][P], lambda[M];
    int32_t state;
    Random random;
} Trial;

typedef struct {
    int32_t state, event, next; /* next: the model's own successor, also when the chain restarts */
} Transition;

static inline uint32_t rotate(uint32_t x, int k) { return (x << k) | (x >> (32 - k)); }

static inline float uniform(Random *random) /* in [0, 1), 24 bits */
{
    uint32_t *x = random->x, result = x[0] + x[3], t = x[1] << 9;
    x[2] ^= x[0];
    x[3] ^= x[1];
    x[1] ^= x[2];
    x[0] ^= x[3];
    x[2] ^= t;
    x[3] = rotate(x[3], 11);
    return (float)(result >> 8) * 0x1p-24f;
}

static Random seeded(uint64_t seed) /* splitmix64 */
{
    Random random;
    for (int i = 0; i < 2; i++) {
        uint64_t z = seed += 0x9e3779b97f4a7c15u;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        z ^= z >> 31;
        random.x[2 * i] = (uint32_t)z;
        random.x[2 * i + 1] = (uint32_t)(z >> 32);
    }
    return random;
}

static int32_t draw_start(const Model *model, Random *random)
{
    float u = uniform(random);
    int32_t k = 0;
    while (k < model->num_starts - 1 && u >= model->start[k]) k++;
    return model->start_state[k];
}

static void tabulate_policy(const Model *model, Trial *trial)
{
    float *policy = trial->policy;
    for (int s = 0; s < S; s++) {
        const float *logits = trial->theta + s * A;
        float peak = logits[0];
        for (int a = 1; a < A; a++) peak = fmaxf(peak, logits[a]);
        for (int a = 0; a < A; a++) policy[s * A + a] = logits[a] - peak;
    }
    for (int k = 0; k < P; k++) policy[k] = expf(policy[k]);
    for (int s = 0; s < S; s++) {
        float total = 0;
        for (int a = 0; a < A; a++) total += policy[s * A + a];
        float scale = 1 / total, sum = 0;
        for (int a = 0; a < A; a++) policy[s * A + a] *= scale;
        for (int k = 0; k < L; k++) {
            sum += policy[s * A + k / O] * model->probability[s * L + k];
            trial->cumulative[s * L + k] = sum;
        }
    }
}

static void walk(const Model *model, Trial *trial, int32_t length, Transition *path)
{
    int32_t s = trial->state;
    for (int32_t d = 0; d < length; d++) {
        float u = uniform(&trial->random);
        const float *cumulative = trial->cumulative + s * L;
        int32_t event = 0;
        for (int k = 0; k < L - 1; k++) event += u >= cumulative[k];
        int32_t at = s * L + event, next = model->next_state[at];
        path[d] = (Transition){s, at, next};
        s = model->terminated[at] ? draw_start(model, &trial->random) : next;
    }
    trial->state = s;
}

static void td_errors(const Model *model, const float *w, float discount, int32_t length, const Transition *path,
                      float (*delta)[M])
{
    for (int32_t d = 0; d < length; d++) {
        Transition x = path[d];
        float factor = model->terminated[x.event] ? 0 : discount;
        for (int i = 0; i < M; i++)
            delta[d][i] = model->reward[x.event * M + i] + factor * w[x.next * M + i] - w[x.state * M + i];
    }
}

static void critic_step(const Model *model, const Settings *settings, Trial *trial, Transition *path, float (*delta)[M])
{
    int32_t D = settings->critic_batch;
    float step = settings->beta / D;
    walk(model, trial, D, path);
    td_errors(model, trial->w, settings->discount, D, path, delta);
    for (int32_t d = 0; d < D; d++)
        for (int i = 0; i < M; i++) trial->w[path[d].state * M + i] += step * delta[d][i];
}

static void actor_gradients(const Model *model, const Settings *settings, Trial *trial, Transition *path,
                            float (*delta)[M])
{
    int32_t B = settings->actor_batch;
    walk(model, trial, B, path);
    td_errors(model, trial->w, settings->discount, B, path, delta);
    memset(trial->G, 0, sizeof trial->G);
    for (int32_t b = 0; b < B; b++) {
        int32_t row = path[b].state * A, action = path[b].event % L / O;
        float score[A];
        for (int a = 0; a < A; a++) score[a] = (float)(a == action) - trial->policy[row + a];
        for (int i = 0; i < M; i++)
            for (int a = 0; a < A; a++) trial->G[i][row + a] += delta[b][i] / B * score[a];
    }
}

static double objective(double K[M][M], const double *lambda)
{
    double f = 0;
    for (int i = 0; i < M; i++)
        for (int j = 0; j < M; j++) f += lambda[i] * lambda[j] * K[i][j];
    return f;
}

static void keep_better(double K[M][M], const double *candidate, double *best)
{
    if (objective(K, candidate) < objective(K, best)) memcpy(best, candidate, M * sizeof *best);
}

/* The optimum lies inside one of the seven faces, where it solves K x = 1 up to scale: try them all. */
static void min_norm(double K[M][M], double *lambda)
{
    double vertex[M] = {1, 0, 0};
    memcpy(lambda, vertex, sizeof vertex);
    for (int i = 0; i < M; i++) {
        double other[M] = {0};
        other[i] = 1;
        keep_better(K, other, lambda);
        int j = (i + 1) % M, k = (i + 2) % M;
        double length = K[j][j] + K[k][k] - 2 * K[j][k], t = K[k][k] - K[j][k]; /* edge j-k, weight t/length on j */
        if (0 < t && t < length) {
            double edge[M] = {0};
            edge[j] = t / length;
            edge[k] = 1 - edge[j];
            keep_better(K, edge, lambda);
        }
    }
    double x[M], total = 0;
    int inside = 1;
    for (int i = 0; i < M; i++) { /* the adjugate of K times 1 */
        int j = (i + 1) % M, k = (i + 2) % M;
        x[i] = K[j][j] * K[k][k] - K[j][k] * K[j][k] + K[i][k] * K[j][k] - K[i][j] * K[k][k] + K[i][j] * K[j][k] -
               K[i][k] * K[j][j];
        total += x[i];
        inside &= x[i] > 0;
    }
    if (inside) {
        for (int i = 0; i < M; i++) x[i] /= total;
        keep_better(K, x, lambda);
    }
}

static void actor_step(const Settings *settings, Trial *trial, int32_t t)
{
    double K[M][M], lambda_hat[M];
    for (int i = 0; i < M; i++)
        for (int j = 0; j <= i; j++) {
            float dot = 0;
            for (int k = 0; k < P; k++) dot += trial->G[i][k] * trial->G[j][k];
            K[i][j] = K[j][i] = dot;
        }
    min_norm(K, lambda_hat);
    float eta = 1.0f / t, *lambda = trial->lambda;
    for (int i = 0; i < M; i++) lambda[i] = (1 - eta) * lambda[i] + eta * (float)lambda_hat[i];
    for (int k = 0; k < P; k++) {
        float d = 0;
        for (int i = 0; i < M; i++) d += lambda[i] * trial->G[i][k];
        trial->theta[k] += settings->alpha * d;
    }
}

/* Runs all trials; theta [trials, S, A] and lambda [trials, M] receive where each of them ended. */
void moac_run(const Model *model, const Settings *settings, uint64_t seed, int32_t trials, float *theta, float *lambda)
{
    static Trial trial;
    static Transition path[MAX_BATCH];
    static float delta[MAX_BATCH][M];
    for (int32_t n = 0; n < trials; n++) {
        memset(&trial, 0, sizeof trial);
        trial.random = seeded(seed * 0x100000001b3u + (uint64_t)n);
        trial.state = draw_start(model, &trial.random);
        for (int32_t t = 1; t <= settings->iterations; t++) {
            tabulate_policy(model, &trial);
            for (int32_t k = 0; k < settings->critic_steps; k++) critic_step(model, settings, &trial, path, delta);
            actor_gradients(model, settings, &trial, path, delta);
            actor_step(settings, &trial, t);
        }
        memcpy(theta + (size_t)n * P, trial.theta, sizeof trial.theta);
        memcpy(lambda + (size_t)n * M, trial.lambda, sizeof trial.lambda);
    }
}
